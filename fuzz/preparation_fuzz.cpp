// Any text is a preparation, which prints so that it reads back and prints alike, or a UserError.
#include <cstdlib>

#include "hotloop/data.h"
#include "hotloop/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hotloop::data;
  std::string json;
  try {
    json = Preparation::parse({reinterpret_cast<const char*>(data), size}, "fuzz").json();
  } catch (const hotloop::UserError&) {
    return 0;
  }
  if (Preparation::parse(json, "again").json() != json) std::abort();
  return 0;
}
