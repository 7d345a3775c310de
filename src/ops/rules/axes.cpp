#include "ops/rules/axes.h"

#include <algorithm>

#include "core/index.h"

namespace hotloop::ir {

std::vector<AxisLink> axes_elementwise(const Node& node) {
  std::vector<AxisLink> links;
  for (int k = 0; k < static_cast<int>(node.operands.size()); ++k) link_same(links, node, k);
  return links;
}

void link_same(std::vector<AxisLink>& links, const Node& node, int operand) {
  for (int i = 0; i < node.operands[at(operand)].rank(); ++i) links.push_back({operand, i, i});
}

void link_part(std::vector<AxisLink>& links, const Node& node, int operand) {
  const Shape &in = node.operands[at(operand)].shape(), &out = node.types[0].shape;
  for (int i = 0; i < in.rank(); ++i)
    links.push_back({operand, i, i, in[i] == out[i] ? AxisUse::Same : AxisUse::Mixed});
}

std::vector<AxisLink> axes_without(const Node& node, const std::vector<std::int64_t>& gone, AxisUse use) {
  std::vector<AxisLink> links;
  const int rank = node.types[0].shape.rank();
  int kept = 0, left_out = 0;
  for (int i = 0; i < node.operands[0].rank(); ++i)
    if (std::ranges::find(gone, i) == gone.end())
      links.push_back({0, i, kept++});
    else
      links.push_back({0, i, use == AxisUse::Summed ? rank + left_out++ : -1, use});
  return links;
}

}  // namespace hotloop::ir
