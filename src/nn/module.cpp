#include "hotloop/nn.h"
#include "hotloop/ops.h"

namespace hotloop::nn {

ValueType Layer::output_type(const ValueType& input) const {
  const Tree<Array> params = init(0, input.dtype);
  std::vector<ValueType> types{input};
  params.for_each([&](const std::string&, const Array& leaf) { types.push_back(leaf.type()); });
  const auto graph = trace(
      [&](std::span<const Value> in) { return std::vector<Value>{apply(params.unflatten(in.subspan(1)), in[0])}; },
      types, "output_type");
  return graph->outputs()[0].type();
}

}  // namespace hotloop::nn
