#include "schedule/filled_tables.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ir/op_def.h"
#include "schedule/replaced_parts.h"

namespace hotloop {

using ir::OpKind;

namespace {

// How a carry becomes its output, one replacement of parts after the other.
class Replacements {
 public:
  // Nothing where the carry becomes anything else, or all rows replace the same places.
  static std::optional<Replacements> of_carry(const LoweringContext& context, const Graph& body, std::size_t carry) {
    Replacements found;
    bool by_row = false;
    Value v = body.outputs()[carry];
    for (; v != body.inputs()[carry]; v = v.node->operands[found.replaced_[v.node]]) {
      const Node& node = *v.node;
      const std::optional<std::size_t> replaced = replaced_operand(v);
      if (!replaced || (ir::is(node, OpKind::Loop) && !is_only_filled(context, v))) return std::nullopt;
      found.tables_.insert(key_of(v));
      found.replaced_[&node] = *replaced;
      // Places that a loop within fills are its rows' own, or it would not be one that only fills.
      by_row = by_row || ir::is(node, OpKind::Loop) ||
               std::ranges::any_of(std::span(node.operands).subspan(2),
                                   [&](Value start) { return context.axes().axis_in(start, context.tile_class) >= 0; });
    }
    found.tables_.insert(key_of(v));
    return by_row ? std::optional(found) : std::nullopt;
  }

  // Whether v is computed from what the table holds on its way; what it is replaced with is asked for by itself.
  bool feed(Value v) {
    if (tables_.contains(key_of(v))) return true;
    return seen_.insert(v.node).second && feed_operands(*v.node);
  }
  bool feed_each_other() {
    return std::ranges::any_of(replaced_, [&](const auto& it) { return feed_operands(*it.first); });
  }

 private:
  bool feed_operands(const Node& node) {
    const std::vector<Value> read = operands_read(node);
    const auto it = replaced_.find(&node);
    for (std::size_t i = 0; i < read.size(); ++i)
      if ((it == replaced_.end() || i != it->second) && feed(read[i])) return true;
    return false;
  }

  std::set<ValueKey> tables_;
  std::map<const Node*, std::size_t> replaced_;  // which operand a node replaces parts of
  std::set<const Node*> seen_;
};

}  // namespace

bool is_only_filled(const LoweringContext& context, Value table) {
  const Node& loop = *table.node;
  if (!ir::is(loop, OpKind::Loop) || table.index >= loop.attrs.integer("num_carry")) return false;
  const auto carry = static_cast<std::size_t>(table.index);
  const Graph& body = *loop.regions[0];
  std::optional<Replacements> replacements = Replacements::of_carry(context, body, carry);
  if (!replacements || replacements->feed_each_other()) return false;
  for (std::size_t i = 0; i < body.outputs().size(); ++i)
    if (i != carry && replacements->feed(body.outputs()[i])) return false;
  if (loop.regions.size() == 1) return true;
  // Whether another iteration follows may not depend on it either.
  const Value asked = loop.regions[1]->inputs()[carry];
  return std::ranges::none_of(loop.regions[1]->nodes(), [&](const auto& n) {
    return std::ranges::find(n->operands, asked) != n->operands.end();
  });
}

}  // namespace hotloop
