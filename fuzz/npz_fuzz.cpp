// Any bytes are an archive of arrays or a UserError.
#include "hotloop/error.h"
#include "hotloop/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    hotloop::io::parse_npz({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const hotloop::UserError&) {
  }
  return 0;
}
