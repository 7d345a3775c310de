// Any bytes are an array, which then is written and read back alike, or a UserError.
#include <cstdlib>
#include <cstring>

#include "hotloop/error.h"
#include "hotloop/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hotloop;
  try {
    const Array array = io::parse_npy({reinterpret_cast<const char*>(data), size}, "fuzz");
    const Array again = io::parse_npy(io::print_npy(array), "again");
    if (again.type() != array.type() || std::memcmp(again.raw(), array.raw(), array.bytes()) != 0) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
