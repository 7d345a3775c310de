#include "ir/equality.h"

#include <algorithm>
#include <cstring>

#include "ir/op_def.h"

namespace hotloop::ir {

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

bool same_attrs(const Attrs& a, const Attrs& b) {
  return std::ranges::equal(a.entries(), b.entries(), [](const auto& x, const auto& y) {
    return x.first == y.first && same_attr(x.second, y.second);
  });
}

bool same_regions(const Node& a, const Node& b, Rules rules) {
  const auto text = [rules](const Graph& g) { return rules == Rules::Compared ? print(g) : print_without_rules(g); };
  return std::ranges::equal(a.regions, b.regions, [&](const auto& x, const auto& y) {
    return x == y || (x->nodes().size() == y->nodes().size() && text(*x) == text(*y));
  });
}

}  // namespace hotloop::ir
