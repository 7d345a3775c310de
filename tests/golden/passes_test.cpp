// Golden text of each pass on small graphs. A file tests/golden/passes/<case>.txt holds
//   passes: names, in order, or "all" for the whole pipeline
//   the input graph
//   ----
//   the graph afterwards
// HOTLOOP_UPDATE_GOLDEN=1 rewrites what stands after the rule.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/op_def.h"
#include "passes/pipeline.h"
#include "test_dir.h"

namespace hotloop {
namespace {

std::string run(const std::string& names, const std::string& input) {
  std::shared_ptr<const Graph> graph = ir::parse(input);
  ir::verify(*graph);
  const passes::PassOptions options;
  if (names == "all") return ir::print(*passes::optimize(*graph, options));
  std::istringstream list(names);
  for (std::string name; list >> name;) {
    bool found = false;
    for (const passes::Pass& pass : passes::all_passes()) {
      if (pass.name != name) continue;
      found = true;
      if (auto result = pass.run(*graph, options)) graph = result;
      ir::verify(*graph);
    }
    EXPECT_TRUE(found) << "no pass is called " << name;
  }
  return ir::print(*graph);
}

TEST(Golden, Passes) {
  const std::filesystem::path folder = std::filesystem::path(testing::test_dir()) / "golden" / "passes";
  int num_cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    std::stringstream content;
    content << std::ifstream(entry.path()).rdbuf();
    const std::string text = content.str();
    const std::size_t first_line = text.find('\n'), rule = text.find("----\n");
    ASSERT_TRUE(text.starts_with("passes: "));
    ASSERT_NE(rule, std::string::npos);
    const std::string input = text.substr(first_line + 1, rule - first_line - 1);
    const std::string result = run(text.substr(8, first_line - 8), input);
    if (std::getenv("HOTLOOP_UPDATE_GOLDEN") != nullptr)
      std::ofstream(entry.path()) << text.substr(0, rule) << "----\n" << result;
    else
      EXPECT_EQ(result, text.substr(rule + 5));
    ++num_cases;
  }
  EXPECT_GT(num_cases, 0);
}

}  // namespace
}  // namespace hotloop
