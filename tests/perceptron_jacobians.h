// Perceptrons whose Jacobians are looked at, and the kernel that a graph becomes.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/hotloop.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {

using Values = std::span<const Value>;

struct Net {
  std::string name;
  std::vector<std::int64_t> widths;
  Value (*activation)(Value);
  std::int64_t batch = 100;
};
inline void PrintTo(const Net& net, std::ostream* out) { *out << net.name; }

inline std::vector<Value> apply(const Net& net, Values v) {
  Value h = v[0];
  for (std::size_t k = 1; k < v.size(); k += 2) {
    h = matmul(h, v[k]) + v[k + 1];
    if (k + 2 < v.size()) h = net.activation(h);
  }
  return {h};
}

inline std::vector<ValueType> types_of(const Net& net) {
  std::vector<ValueType> types{{DType::F32, {net.batch, net.widths[0]}}};
  for (std::size_t k = 0; k + 1 < net.widths.size(); ++k) {
    types.push_back({DType::F32, {net.widths[k], net.widths[k + 1]}});
    types.push_back({DType::F32, {net.widths[k + 1]}});
  }
  return types;
}

inline kernel::Program program_of(const Graph& graph) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  return schedule(*passes::optimize(graph, {}), options);
}

}  // namespace hotloop
