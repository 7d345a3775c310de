// Any text either is refused with a UserError or parses to a graph whose own text parses to the same.
#include <cstdlib>
#include <string_view>

#include "hotloop/error.h"
#include "ir/op_def.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hotloop;
  std::shared_ptr<Graph> graph;
  try {
    graph = ir::parse({reinterpret_cast<const char*>(data), size});
    ir::verify(*graph);
  } catch (const UserError&) {
    return 0;
  }
  const std::string text = ir::print(*graph);
  if (ir::print(*ir::parse(text)) != text) std::abort();
  return 0;
}
