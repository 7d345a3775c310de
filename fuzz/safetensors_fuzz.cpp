// Any bytes are a checkpoint, which then is written and read back alike, or a UserError.
#include <cstdlib>

#include "hotloop/error.h"
#include "hotloop/io.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hotloop::io;
  try {
    const Checkpoint checkpoint = parse_safetensors({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string bytes = print_safetensors(checkpoint);
    if (print_safetensors(parse_safetensors(bytes, "again")) != bytes) std::abort();
  } catch (const hotloop::UserError&) {
  }
  return 0;
}
