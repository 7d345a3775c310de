#include <numeric>

#include "hotloop/error.h"
#include "hotloop/train.h"
#include "hotloop/transforms.h"

namespace hotloop::train {
namespace {

void append_types(std::vector<ValueType>& types, const Tree<Array>& tree) {
  tree.for_each([&](const std::string&, const Array& leaf) { types.push_back(leaf.type()); });
}

void append(std::vector<Value>& to, const std::vector<Value>& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

std::vector<Array> Step::arguments(const Tree<Array>& params, const Tree<Array>& state, const Array& x,
                                   const Array& y) const {
  std::vector<Array> all = params.flatten();
  for (const Array& leaf : state.flatten()) all.push_back(leaf);
  all.push_back(x);
  if (y.defined()) all.push_back(y);
  HOTLOOP_CHECK(all.size() == input_types.size(), "arguments of another structure than the step was made for");
  return all;
}

std::shared_ptr<Graph> Step::graph() const { return trace(function, input_types, name); }

Step train_step(const nn::Layer& model, const losses::Loss& loss, const optim::Optimizer& optimizer,
                const Tree<Array>& params, const Tree<Array>& state, const ValueType& x, const ValueType& y) {
  if (x.shape.rank() == 0 || y.shape.rank() == 0 || x.shape[0] != y.shape[0])
    throw UserError("train_step", "x and y must have the same number of rows", x.str() + " and " + y.str());
  Step step;
  step.num_params = params.num_leaves();
  step.num_state = state.num_leaves();
  append_types(step.input_types, params);
  append_types(step.input_types, state);
  step.batch_axes.assign(step.input_types.size(), -1);
  step.donated.resize(step.input_types.size());
  std::iota(step.donated.begin(), step.donated.end(), 0);
  step.input_types.insert(step.input_types.end(), {x, y});
  step.batch_axes.insert(step.batch_axes.end(), {0, 0});

  const std::size_t p = step.num_params, s = step.num_state;
  step.function = [=](std::span<const Value> inputs) {
    const auto loss_of = [=](std::span<const Value> in) {
      const Tree<Value> own = params.unflatten(in.first(p));
      return std::vector<Value>{loss(model.apply(own, in[p]), in[p + 1])};
    };
    std::vector<Value> arguments(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(p));
    arguments.insert(arguments.end(), {inputs[p + s], inputs[p + s + 1]});
    std::vector<int> wanted(p);
    std::iota(wanted.begin(), wanted.end(), 0);
    const std::vector<Value> results = value_and_grad(loss_of, wanted)(arguments);
    const auto [new_params, new_state] =
        optimizer.update(params.unflatten(std::span(results).subspan(1)), state.unflatten(inputs.subspan(p, s)),
                         params.unflatten(inputs.first(p)));
    std::vector<Value> outputs = new_params.flatten();
    append(outputs, new_state.flatten());
    outputs.push_back(results[0]);
    return outputs;
  };
  return step;
}

Step predict_step(const nn::Layer& model, const Tree<Array>& params, const ValueType& x) {
  Step step;
  step.name = "predict";
  step.num_params = params.num_leaves();
  append_types(step.input_types, params);
  step.batch_axes.assign(step.input_types.size(), -1);
  step.input_types.push_back(x);
  step.batch_axes.push_back(0);
  step.function = [=, p = step.num_params](std::span<const Value> inputs) {
    return std::vector<Value>{model.apply(params.unflatten(inputs.first(p)), inputs[p])};
  };
  return step;
}

}  // namespace hotloop::train
