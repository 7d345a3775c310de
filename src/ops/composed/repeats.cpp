#include "ops/composed/repeats.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "core/index.h"
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
  return same_attrs(x, y) && same_regions(a, b, Rules::Compared) && same_rule(a, b);
}

namespace {

// Every longest stretch in which each number is the one a period later, of `fewest_steps` periods or more: by period, then by start. Such a stretch is
// met at a multiple of its period, so that most periods take a look at a few places; and one of a shorter period is one of its multiples'.
std::vector<Run> stretches(std::span<const std::size_t> kinds) {
  const int n = static_cast<int>(kinds.size());
  struct Stretch {
    int start, end, period;
  };
  std::vector<Stretch> shortest;                // of a period that no shorter one divides
  std::vector<int> at_place(kinds.size(), -1);  // the last of these found there
  std::vector<Run> found;
  for (int period = 1; period * fewest_steps <= n; ++period) {
    const auto repeats = [&](int i) { return kinds[at(i)] == kinds[at(i + period)]; };
    for (int i = 0; i + period < n;) {
      if (!repeats(i)) {
        i += period;
        continue;
      }
      const Stretch* known = at_place[at(i)] < 0 ? nullptr : &shortest[at(at_place[at(i)])];
      if (known && (i + period >= known->end || period % known->period != 0)) known = nullptr;
      int first = i, last = i + 1;  // of what repeats, and after it
      if (known) {
        first = known->start;
        last = known->end - period;
      } else {
        while (first > 0 && repeats(first - 1)) --first;
        while (last + period < n && repeats(last)) ++last;
      }
      const Run run{first, period, (last - first) / period + 1};
      if (run.count >= fewest_steps) {
        found.push_back(run);
        if (!known) {
          std::fill(at_place.begin() + first, at_place.begin() + last + period, static_cast<int>(shortest.size()));
          shortest.push_back({first, last + period, period});
        }
      }
      i = (last / period + 1) * period;
    }
  }
  return found;
}

}  // namespace

std::vector<Run> find_repeats(std::span<const Node* const> nodes) {
  std::vector<std::size_t> kinds;
  kinds.reserve(nodes.size());
  for (const Node* node : nodes) kinds.push_back(kind_hash(*node));
  std::vector<Run> found = stretches(kinds);
  // Two steps are a step too: the shorter one, which covers a little less.
  std::ranges::stable_sort(found, std::greater{}, [](const Run& r) { return r.period * (r.count - 2); });
  return found;
}

}  // namespace hotloop::ir
