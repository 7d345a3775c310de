#include "ops/composed/repeats.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "ir/equality.h"
#include "ir/op_def.h"

namespace hotloop::ir {
namespace {

// One number a node, equal for nodes that may be the same one of two steps.
std::size_t kind_hash(const Node& node) {
  std::size_t h = std::hash<const void*>{}(node.op);
  const auto mix = [&](std::size_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15u + (h >> 29); };
  const auto mix_type = [&](const ValueType& type) {
    mix(static_cast<std::size_t>(type.dtype));
    for (int i = 0; i < type.shape.rank(); ++i) mix(static_cast<std::size_t>(type.shape[i]) + 7);
  };
  for (const ValueType& type : node.types) mix_type(type);
  for (const Value& v : node.operands) mix_type(v.type());
  mix(static_cast<std::size_t>(node.generation));
  return h;
}

bool same_rule(const Node& a, const Node& b) {
  if (a.attrs.has(jvp_rule_attr) != b.attrs.has(jvp_rule_attr)) return false;
  if (!a.attrs.has(jvp_rule_attr)) return true;
  const auto &x = a.attrs.get<std::shared_ptr<const LazyGraph>>(jvp_rule_attr),
             &y = b.attrs.get<std::shared_ptr<const LazyGraph>>(jvp_rule_attr);
  return x == y || print(*x->get()) == print(*y->get());
}

}  // namespace

bool alike(const Node& a, const Node& b) {
  if (a.op != b.op || a.generation != b.generation || a.types != b.types || a.operands.size() != b.operands.size())
    return false;
  for (std::size_t i = 0; i < a.operands.size(); ++i)
    if (a.operands[i].type() != b.operands[i].type()) return false;
  if (is(a, OpKind::Constant)) return true;
  if (is(a, OpKind::Slice)) return a.attrs.integers("step") == b.attrs.integers("step");
  Attrs x = a.attrs, y = b.attrs;
  x.erase(jvp_rule_attr);
  y.erase(jvp_rule_attr);
  return same_attrs(x, y) && same_regions(a, b) && same_rule(a, b);
}

std::vector<Run> find_repeats(std::span<const Node* const> nodes) {
  std::vector<std::size_t> kinds;
  kinds.reserve(nodes.size());
  for (const Node* node : nodes) kinds.push_back(kind_hash(*node));
  const int n = static_cast<int>(kinds.size());
  std::vector<Run> found;
  for (int period = 1; period * fewest_steps <= n; ++period) {
    for (int i = 0; i + period < n;) {
      int same = 0;
      while (i + same + period < n &&
             kinds[static_cast<std::size_t>(i + same)] == kinds[static_cast<std::size_t>(i + same + period)])
        ++same;
      const Run run{i, period, same / period + 1};
      if (run.count >= fewest_steps) found.push_back(run);
      i += same + 1;
    }
  }
  // Two steps are a step too: the shorter one, which covers a little less.
  std::ranges::stable_sort(found, std::greater{}, [](const Run& r) { return r.period * (r.count - 2); });
  return found;
}

}  // namespace hotloop::ir
