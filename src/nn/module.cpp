#include "hotloop/nn.h"

#include <algorithm>

#include "core/nearest.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "nn/own_modules.h"
#include "nn/recurrent.h"

namespace hotloop::nn {
namespace {

// Called once a model, by the layer that is given the lengths first: layers inside see what those before them give.
bool is_first_with_lengths(const Context& context) { return context.lengths.defined() && !context.padding_is_zero; }

Value checked_output(Value y) {
  if (!y.defined())
    throw UserError("model", "the apply() of a module must give a value", "Value(), which is none",
                    "return what is computed from x");
  return y;
}

// Where apply() throws because the parameters are another model's, says so: inside, only the last part of a name is known.
void check_names(const Layer& layer, const Tree<Value>& params, Value x) {
  const std::vector<std::string> wanted =
                                     layer.init(0, x.defined() && is_float(x.dtype()) ? x.dtype() : DType::F32).names(),
                                 given = params.names();
  for (const std::string& name : wanted)
    if (std::ranges::find(given, name) == given.end())
      throw UserError("model", "the parameters must be the model's own, with " + (name.empty() ? "a leaf alone" : name),
                      given.empty()      ? "an empty tree"
                      : params.is_leaf() ? "a leaf"
                                         : "no " + name,
                      nearest_name(name, given) != nullptr ? nearest_hint(name, given)
                                                           : "what model.init(seed) gave, or that it was trained with");
}

}  // namespace

std::size_t timed_input(const Tree<ValueType>& batch_inputs) {
  const std::vector<ValueType> types = batch_inputs.flatten();
  for (const int rank : {3, 2})
    for (std::size_t i = 0; i < types.size(); ++i)
      if (types[i].shape.rank() >= rank) return i;
  return 0;
}

Value Module::apply_inputs(const Tree<Value>& params, const Tree<Value>& inputs, Context& context) const {
  const std::vector<Value> leaves = inputs.flatten();
  if (leaves.size() != 1) {
    std::string received;
    inputs.for_each([&](const std::string& name, const Value& leaf) {
      received += (received.empty() ? "" : ", ") + name + " " + leaf.type().str();
    });
    throw UserError("model", "the input must be one array", received.empty() ? "a tree without leaves" : received,
                    "a module of your own that takes several, a nn::MultiInputModule, as the first one of the model");
  }
  return apply(params, leaves[0], context);
}

Tree<Array> Layer::init(const Seed& seed, DType dtype, Init init) const {
  if (seed.generator() == Generator::Torch && init == Init::Keras)
    throw UserError("init", "PyTorch's generator draws PyTorch's initial values alone", "Keras' defaults",
                    "Keras' defaults with the default generator");
  return module_->init(seed.started(), dtype, init);
}

Value Layer::apply(const Tree<Value>& params, Value x, Context& context) const {
  if (is_first_with_lengths(context)) {
    x = without_padding(x, context.lengths);
    context.padding_is_zero = true;
  }
  const OwnCall call(module_, Tree<Value>(x));
  try {
    return checked_output(module_->apply(params, x, context));
  } catch (const UserError&) {
    check_names(*this, params, x);
    throw;
  }
}

Value Layer::apply(const Tree<Value>& params, const Tree<Value>& inputs, Context& context) const {
  if (inputs.is_leaf()) return apply(params, inputs.leaf(), context);
  std::vector<Value> leaves = inputs.flatten();
  if (is_first_with_lengths(context) && !leaves.empty()) {
    Value& timed = leaves[timed_input(inputs.map([](const Value& v) { return v.type(); }))];
    timed = without_padding(timed, context.lengths);
    context.padding_is_zero = true;
  }
  const OwnCall call(module_, inputs);
  try {
    return checked_output(module_->apply_inputs(params, inputs.unflatten(leaves), context));
  } catch (const UserError&) {
    check_names(*this, params, leaves.empty() ? Value() : leaves[0]);
    throw;
  }
}

ValueType Layer::output_type(const Tree<ValueType>& inputs) const {
  std::vector<ValueType> types = inputs.flatten();
  const std::size_t num_inputs = types.size();
  const auto first_float = std::ranges::find_if(types, [](const ValueType& type) { return is_float(type.dtype); });
  const DType dtype = first_float != types.end() ? first_float->dtype : DType::F32;
  const Tree<Array> params = init(0, dtype), buffers = init_buffers(dtype);
  for (const Tree<Array>* tree : {&params, &buffers})
    tree->for_each([&](const std::string&, const Array& leaf) { types.push_back(leaf.type()); });
  const auto graph = trace(
      [&](std::span<const Value> in) {
        Context context;
        context.buffers = buffers.unflatten(in.subspan(num_inputs + params.num_leaves()));
        return std::vector<Value>{apply(params.unflatten(in.subspan(num_inputs, params.num_leaves())),
                                        inputs.unflatten(in.first(num_inputs)), context)};
      },
      types, "output_type");
  return graph->outputs()[0].type();
}

}  // namespace hotloop::nn
