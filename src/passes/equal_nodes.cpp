#include "passes/equal_nodes.h"

#include <algorithm>
#include <cstring>

namespace hotloop::passes {
namespace {

bool same_attr(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<Array>(&a)) {
    const auto& y = std::get<Array>(b);
    return x->type() == y.type() && std::memcmp(x->raw(), y.raw(), x->bytes()) == 0;
  }
  if (const auto* x = std::get_if<double>(&a)) return std::memcmp(x, std::get_if<double>(&b), sizeof(double)) == 0;
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, Array> || std::is_same_v<T, double>)
          return false;
        else
          return x == std::get<T>(b);
      },
      a);
}

bool same_regions(const Node& a, const Node& b) {
  return std::ranges::equal(a.regions, b.regions, [](const auto& x, const auto& y) {
    return x == y ||
           (x->nodes().size() == y->nodes().size() && ir::print_without_rules(*x) == ir::print_without_rules(*y));
  });
}

bool before(Value a, Value b) { return a.node->id != b.node->id ? a.node->id < b.node->id : a.index < b.index; }

std::vector<Value> sorted(const Node& node, std::vector<Value> operands) {
  if (node.op->commutative && operands.size() == 2 && before(operands[1], operands[0]))
    std::swap(operands[0], operands[1]);
  return operands;
}

}  // namespace

bool same_attrs(const Attrs& a, const Attrs& b) {
  return std::ranges::equal(a.entries(), b.entries(), [](const auto& x, const auto& y) {
    return x.first == y.first && same_attr(x.second, y.second);
  });
}

const Node* EqualNodes::find(const Node& node, const std::vector<Value>& operands) const {
  const auto [first, last] = nodes_.equal_range(hash(node, operands));
  for (auto it = first; it != last; ++it) {
    const Node& other = *it->second;
    if (other.op == node.op && other.generation == node.generation &&
        sorted(other, other.operands) == sorted(node, operands) && same_attrs(other.attrs, node.attrs) &&
        same_regions(other, node))
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
