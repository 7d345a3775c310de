#include <cmath>

#include "hotloop/ops.h"
#include "nn/parameters.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class Conv1dModule : public BuiltInModule {
 public:
  Conv1dModule(std::int64_t inputs, std::int64_t filters, std::int64_t kernel, const Conv1dOptions& options)
      : inputs_(inputs), filters_(filters), kernel_(kernel), options_(options) {
    const std::int64_t groups = options.groups;
    for (const auto& [what, value] : {std::pair{"inputs", inputs},
                                      {"filters", filters},
                                      {"kernel", kernel},
                                      {"dilation", options.dilation},
                                      {"groups", groups}})
      if (value <= 0) throw UserError("conv1d", std::string(what) + " must be positive", std::to_string(value));
    if (inputs % groups != 0 || filters % groups != 0)
      throw UserError("conv1d", "groups must divide inputs and filters",
                      std::to_string(groups) + " groups, " + std::to_string(inputs) + " inputs, " +
                          std::to_string(filters) + " filters");
  }

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    const Shape weight{filters_, inputs_ / options_.groups, kernel_}, bias{filters_};
    const bool keras = init == Init::Keras;
    const auto fan_in = static_cast<double>(weight[1] * kernel_), fan_out = static_cast<double>(filters_ * kernel_);
    const double bound = keras ? std::sqrt(6 / (fan_in + fan_out)) : 1 / std::sqrt(fan_in);
    Tree<Array> params;
    params.set("weight", uniform(fold_in(seed, "weight"), weight, dtype, -bound, bound));
    if (options_.bias)
      params.set("bias",
                 keras ? Array::zeros(dtype, bias) : uniform(fold_in(seed, "bias"), bias, dtype, -bound, bound));
    return params;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    if (past() == 0) return {};
    return {{"past", constant(0.0, dtype, {batch, past(), inputs_})}};
  }

  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    if (x.rank() != 3 || x.shape()[2] != inputs_)
      throw UserError("conv1d", "the input must be (batch, time, " + std::to_string(inputs_) + ")", x.type().str(),
                      x.rank() == 3 ? "make the layer with as many inputs as the data has features"
                                    : "expand_dims() for the axis that is missing");
    check_parameters("conv1d", params,
                     {{"weight", {filters_, inputs_ / options_.groups, kernel_}}, {"bias", {filters_}}});
    const Value weight = params["weight"];
    const std::int64_t steps = x.shape()[1];
    const Value longer = past() == 0 ? x : with_past(x, context);
    // A sum of products over the places of the kernel. The last one sees the step itself.
    Value y;
    for (std::int64_t k = 0; k < kernel_; ++k) {
      const std::int64_t from = (context.reverse ? kernel_ - 1 - k : k) * options_.dilation;
      const Value term = product(narrow(longer, 1, from, steps), take(weight, 2, k));
      y = y.defined() ? y + term : term;
    }
    return options_.bias || params.has("bias") ? y + params["bias"] : y;
  }

 private:
  std::int64_t past() const { return (kernel_ - 1) * options_.dilation; }  // steps that an output sees besides its own

  // x (B, T, I) with the steps before its first one, or after its last valid one where time runs backward.
  Value with_past(Value x, Context& context) const {
    const Value none = constant(0.0, x.dtype(), {x.shape()[0], past(), inputs_});
    if (context.reverse) {
      if (context.state)
        throw UserError("conv1d", "a convolution that runs from the last step to the first has no state to go on from",
                        "a state", "the whole sequence");
      const Value valid = context.lengths.defined() ? select(valid_steps(x, context.lengths), x, zeros_like(x)) : x;
      return concat(std::vector{valid, none}, 1);
    }
    if (context.state && (!context.state->has("past") || (*context.state)["past"].type() != none.type()))
      throw UserError("conv1d", "the given state must be as the layer's initial state, past " + none.type().str(),
                      context.state->has("past") ? (*context.state)["past"].type().str() : "none");
    const Value longer = concat(std::vector{context.state ? (*context.state)["past"] : none, x}, 1);
    if (context.state) context.state->set("past", last_steps(longer, x.shape()[1], context.lengths));
    return longer;
  }

  // The last past() steps of each row: those before `steps` + past(), or before its length + past().
  Value last_steps(Value longer, std::int64_t steps, Value lengths) const {
    if (!lengths.defined()) return narrow(longer, 1, steps, past());
    const std::int64_t batch = longer.shape()[0], extent = longer.shape()[1];
    const Shape places{batch, past()};
    const Value row = iota(DType::I32, places, 0) * broadcast_to(constant(double(extent), DType::I32), places);
    const Value at = row + iota(DType::I32, places, 1) + broadcast(lengths, places, {0});
    return gather(reshape(longer, {batch * extent, inputs_}), at, 0);
  }

  // (B, T, I) by (O, I / groups) -> (B, T, O).
  Value product(Value x, Value weight) const {
    const std::int64_t groups = options_.groups;
    if (groups == 1) return nn::linear(x, weight);
    const std::int64_t batch = x.shape()[0], steps = x.shape()[1];
    const Value parts = reshape(x, {batch, steps, groups, inputs_ / groups});
    const Value own = reshape(weight, {groups, filters_ / groups, inputs_ / groups});
    return reshape(transpose(dot(parts, own, {{3}, {2}, {2}, {0}}), {1, 2, 0, 3}), {batch, steps, filters_});
  }

  std::int64_t inputs_, filters_, kernel_;
  Conv1dOptions options_;
};

}  // namespace

Conv1d::Conv1d(std::int64_t inputs, std::int64_t filters, std::int64_t kernel, const Conv1dOptions& options)
    : Layer(Conv1dModule(inputs, filters, kernel, options)) {}

std::vector<LayerDef> layers_conv1d() {
  return {
      {"conv1d",
       "causal convolution over time: (batch, time, features) -> (batch, time, filters)",
       {{"filters", std::int64_t{0}, "number of outputs", true},
        {"kernel", std::int64_t{0}, "steps that an output sees, the last of them its own", true},
        {"dilation", std::int64_t{1}, "distance between these steps"},
        {"groups", std::int64_t{1}, "parts of the features that are kept apart; divides features and filters"},
        {"bias", true, "whether there is a bias"}},
       [](const Config& config, const ValueType& input) -> Layer {
         return Conv1d(
             features_of(input, 3, "conv1d"), config.integer("filters"), config.integer("kernel"),
             {.dilation = config.integer("dilation"), .groups = config.integer("groups"), .bias = config.flag("bias")});
       }}};
}

}  // namespace hotloop::nn
