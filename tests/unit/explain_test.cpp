// What explain() counts and measures.
#include <gtest/gtest.h>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "runtime/executable.h"

namespace hotloop {
namespace {

TEST(Explain, CountsCallsOfMoreThan32Bits) {
  const auto graph = std::make_shared<Graph>("twice");
  const TraceScope trace(*graph);
  graph->set_outputs({graph->add_input({DType::F32, {3}}) * 2.0});
  const Executable program = compile(graph);
  program.impl().num_calls = std::int64_t{1} << 31;
  program.impl().num_timed = 1;
  EXPECT_NE(program.explain().find(" 2147483648 calls, mean "), std::string::npos) << program.explain();
}

}  // namespace
}  // namespace hotloop
