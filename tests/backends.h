// The ways to run a graph that a test body is repeated on.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "hotloop/jit.h"
#include "ir/op_def.h"

namespace hotloop::testing {

struct Backend {
  std::string name;
  std::function<std::vector<Array>(const std::shared_ptr<const Graph>&, const std::vector<Array>&)> run;
};
inline void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

inline Backend compiled_backend(const std::string& name, const CompileOptions& options) {
  return {name, [options](const std::shared_ptr<const Graph>& graph, const std::vector<Array>& arrays) {
            return compile(graph, options)(arrays);
          }};
}

// "evaluate" defines the meaning; the others must agree with it.
inline std::vector<Backend> all_backends() {
  std::vector<Backend> backends = {
      {"evaluate", [](const auto& graph, const std::vector<Array>& arrays) { return ir::evaluate(*graph, arrays); }}};
  for (const char* name : {"interp", "llvm", "c"}) {
    CompileOptions options;
    options.backend = name;
    backends.push_back(compiled_backend(name, options));
  }
  return backends;
}

}  // namespace hotloop::testing
