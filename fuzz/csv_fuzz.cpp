// Any text is a table or a UserError.
#include "hotloop/data.h"
#include "hotloop/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    hotloop::data::parse_csv({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const hotloop::UserError&) {
  }
  return 0;
}
