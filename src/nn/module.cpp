#include "hotloop/nn.h"

#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::nn {

Tree<Array> Layer::init(const Seed& seed, DType dtype, Init init) const {
  if (seed.generator() == Generator::Torch && init == Init::Keras)
    throw UserError("init", "PyTorch's generator draws PyTorch's initial values alone", "Keras' defaults",
                    "Keras' defaults with the default generator");
  return module_->init(seed.started(), dtype, init);
}

Value Layer::apply(const Tree<Value>& params, Value x, Context& context) const {
  const Value y = module_->apply(params, x, context);
  if (!y.defined())
    throw UserError("model", "the apply() of a module must give a value", "Value(), which is none",
                    "return what is computed from x");
  return y;
}

ValueType Layer::output_type(const ValueType& input) const {
  const DType dtype = is_float(input.dtype) ? input.dtype : DType::F32;
  const Tree<Array> params = init(0, dtype), buffers = init_buffers(dtype);
  std::vector<ValueType> types{input};
  for (const Tree<Array>* tree : {&params, &buffers})
    tree->for_each([&](const std::string&, const Array& leaf) { types.push_back(leaf.type()); });
  const auto graph = trace(
      [&](std::span<const Value> in) {
        Context context;
        context.buffers = buffers.unflatten(in.subspan(1 + params.num_leaves()));
        return std::vector<Value>{apply(params.unflatten(in.subspan(1, params.num_leaves())), in[0], context)};
      },
      types, "output_type");
  return graph->outputs()[0].type();
}

}  // namespace hotloop::nn
