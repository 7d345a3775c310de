#include "ir/dependence.h"

#include <algorithm>

#include "ir/rewrite.h"

namespace hotloop::ir {
namespace {

bool any(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

// Of the results of a loop whose operands are flagged.
std::vector<bool> depending_results(const LoopView& loop, std::vector<bool> operands) {
  const auto num_carry = static_cast<std::size_t>(loop.num_carry()), num_xs = static_cast<std::size_t>(loop.num_xs());
  const std::size_t num_inputs = loop.body().inputs().size();
  bool count = loop.has_trip() && operands.back();
  operands.resize(num_inputs);
  std::vector<bool> outputs;
  for (bool changed = true; changed;) {
    changed = false;
    outputs = depending_outputs(loop.body(), operands);
    for (std::size_t i = 0; i < num_carry; ++i)
      if (outputs[i] && !operands[i]) operands[i] = changed = true;
  }
  if (loop.until() != nullptr) {
    std::vector<bool> read(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(num_carry));
    read.insert(read.end(), operands.begin() + static_cast<std::ptrdiff_t>(num_carry + num_xs), operands.end());
    count = count || any(depending_outputs(*loop.until(), read));
  }
  // The last carries are the first ones, if no step is taken.
  std::copy_n(operands.begin(), num_carry, outputs.begin());
  outputs.push_back(false);
  if (count) outputs.assign(outputs.size(), true);
  return outputs;
}

}  // namespace

std::vector<bool> depending_outputs(const Graph& graph, const std::vector<bool>& inputs) {
  const ValueIndex index(graph);
  std::vector<bool> depends(static_cast<std::size_t>(index.size()));
  const auto flag_of = [&](Value v) { return depends[static_cast<std::size_t>(index(v))]; };
  for (std::size_t i = 0; i < inputs.size(); ++i)
    depends[static_cast<std::size_t>(index(graph.inputs()[i]))] = inputs[i];
  for (const auto& node : graph.nodes()) {
    if (is(*node, OpKind::Input)) continue;
    std::vector<bool> operands, results;
    for (const Value& v : node->operands) operands.push_back(flag_of(v));
    if (!any(operands)) continue;
    if (is(*node, OpKind::Loop))
      results = depending_results(LoopView(*node), operands);
    else if (is(*node, OpKind::Call))
      results = depending_outputs(*node->regions[0], operands);
    else
      results.assign(node->types.size(), true);
    for (std::size_t r = 0; r < results.size(); ++r)
      depends[static_cast<std::size_t>(index({node.get(), static_cast<int>(r)}))] = results[r];
  }
  std::vector<bool> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back(flag_of(v));
  return outputs;
}

}  // namespace hotloop::ir
