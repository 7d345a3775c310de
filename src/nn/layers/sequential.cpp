#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class SequentialModule : public BuiltInModule {
 public:
  explicit SequentialModule(std::vector<Layer> layers) : layers_(std::move(layers)) {}

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    Tree<Array> params;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Tree<Array> own = layers_[i].init(fold_in(seed, name(i)), dtype, init);
      if (!own.empty()) params.set(name(i), std::move(own));
    }
    return params;
  }

  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    return layers_.empty() ? x : apply_inputs(params, Tree<Value>(x), context);
  }

  Value apply_inputs(const Tree<Value>& params, const Tree<Value>& inputs, Context& context) const override {
    if (layers_.empty()) return Module::apply_inputs(params, inputs, context);
    Value x;
    const auto count = static_cast<std::int64_t>(layers_.size());
    const Value keys = context.key.defined() ? random_bits(context.key, {count, 2}) : Value{};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Context inner;
      if (keys.defined()) inner.key = take(keys, 0, static_cast<std::int64_t>(i));
      inner.training = context.training;
      inner.lengths = context.lengths;
      inner.padding_is_zero = context.padding_is_zero;
      inner.reverse = context.reverse;
      // A layer that keeps none is given an empty one: by that a module with layers of its own knows that it is to keep theirs.
      if (context.state) inner.state = context.state->has(name(i)) ? context.state->at(name(i)) : Tree<Value>();
      if (context.buffers.has(name(i))) inner.buffers = context.buffers.at(name(i));
      if (context.watch)
        inner.watch = [&](const std::string& inside, const Value& output) {
          context.watch(name(i) + "." + inside, output);
        };
      const Tree<Value> own = params.has(name(i)) ? params.at(name(i)) : Tree<Value>();
      x = i == 0 ? layers_[0].apply(own, inputs, inner) : layers_[i].apply(own, x, inner);
      if (context.watch) context.watch(name(i), x);
      if (inner.state && !inner.state->empty()) context.state->set(name(i), *inner.state);
      if (!inner.buffers.empty()) context.buffers.set(name(i), inner.buffers);
      context.lengths = inner.lengths;
    }
    return x;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    Tree<Value> state;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Tree<Value> own = layers_[i].initial_state(batch, dtype);
      if (!own.empty()) state.set(name(i), std::move(own));
    }
    return state;
  }

  Tree<Array> init_buffers(DType dtype) const override {
    Tree<Array> buffers;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Tree<Array> own = layers_[i].init_buffers(dtype);
      if (!own.empty()) buffers.set(name(i), std::move(own));
    }
    return buffers;
  }

 private:
  static std::string name(std::size_t i) { return std::to_string(i); }

  std::vector<Layer> layers_;
};

}  // namespace

Sequential::Sequential(std::vector<Layer> layers)
    : Layer(std::make_shared<const SequentialModule>(std::move(layers))) {}

// A configuration's list of layers is the sequence.
std::vector<LayerDef> layers_sequential() { return {}; }

}  // namespace hotloop::nn
