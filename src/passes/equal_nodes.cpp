#include "passes/equal_nodes.h"

#include <algorithm>
#include <cstring>

#include "ir/equality.h"

namespace hotloop::passes {
namespace {

bool before(Value a, Value b) { return a.node->id != b.node->id ? a.node->id < b.node->id : a.index < b.index; }

std::vector<Value> sorted(const Node& node, std::vector<Value> operands) {
  if (node.op->commutative && operands.size() == 2 && before(operands[1], operands[0]))
    std::swap(operands[0], operands[1]);
  return operands;
}

}  // namespace

const Node* EqualNodes::find(const Node& node, const std::vector<Value>& operands) const {
  const auto [first, last] = nodes_.equal_range(hash(node, operands));
  for (auto it = first; it != last; ++it) {
    const Node& other = *it->second;
    if (other.op == node.op && other.generation == node.generation &&
        sorted(other, other.operands) == sorted(node, operands) && ir::same_attrs(other.attrs, node.attrs) &&
        ir::same_regions(other, node, ir::Rules::Ignored))
      return &other;
  }
  return nullptr;
}

std::size_t EqualNodes::hash(const Node& node, const std::vector<Value>& operands) {
  std::size_t h = std::hash<const void*>{}(node.op) + static_cast<std::size_t>(node.generation);
  for (const Value& v : operands) {
    const auto id = static_cast<std::size_t>(v.node->id) * 8 + static_cast<std::size_t>(v.index);
    // Order does not count for commutative ops.
    h = node.op->commutative ? h + id * 0x9e3779b97f4a7c15u : (h ^ id) * 0x9e3779b97f4a7c15u;
  }
  if (node.op->kind == ir::OpKind::Constant) {
    const Array& value = node.attrs.get<Array>("value");
    if (value.size() > 0) {
      std::uint64_t first = 0;
      std::memcpy(&first, value.raw(), std::min<std::size_t>(sizeof first, value.bytes()));
      h ^= static_cast<std::size_t>(first) * 0xff51afd7ed558ccdu;
    }
  }
  return h;
}

}  // namespace hotloop::passes
