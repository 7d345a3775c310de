#include "hotloop/train.h"

#include <numeric>
#include <utility>

#include "core/philox.h"
#include "hotloop/dataset.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "nn/check_params.h"

namespace hotloop::train {
namespace {

void append(std::vector<Value>& to, const std::vector<Value>& from) { to.insert(to.end(), from.begin(), from.end()); }

// The dtype of the arithmetic: the parameters', or of a model without any the input's.
DType float_dtype(const Tree<Array>& params, const Tree<ValueType>& x) {
  for (const Array& leaf : params.flatten())
    if (is_float(leaf.dtype())) return leaf.dtype();
  for (const ValueType& leaf : x.flatten())
    if (is_float(leaf.dtype)) return leaf.dtype;
  return DType::F32;
}

// Number of rows of all inputs and of y, which are the same.
std::int64_t checked_rows(const Tree<ValueType>& x, const ValueType& y) {
  bool same = x.num_leaves() > 0 && y.shape.rank() > 0;
  for (const ValueType& leaf : x.flatten()) same = same && leaf.shape.rank() > 0 && leaf.shape[0] == y.shape[0];
  if (!same)
    throw UserError("train_step", "x and y must have the same number of rows", data::str(x) + " and " + y.str());
  return y.shape[0];
}

// Declares the inputs of a step, and tells where each lies.
class Inputs {
 public:
  explicit Inputs(Step& step) : step_(step) {}

  std::size_t tree(const Tree<Array>& tree) {
    const std::size_t at = step_.input_types.size();
    for (const Array& leaf : tree.flatten()) add(leaf.type(), -1);
    return at;
  }
  std::size_t inputs(const Tree<ValueType>& x) {
    if (x.num_leaves() == 0) throw UserError(step_.name, "there must be an input", "a tree without leaves");
    const std::size_t at = step_.input_types.size();
    for (const ValueType& leaf : x.flatten()) add(leaf, 0);
    step_.num_inputs = x.num_leaves();
    return at;
  }
  std::size_t add(const ValueType& type, int batch_axis) {
    step_.input_types.push_back(type);
    step_.batch_axes.push_back(batch_axis);
    return step_.input_types.size() - 1;
  }

 private:
  Step& step_;
};

}  // namespace

std::vector<Array> Step::arguments(const Tree<Array>& params, const Tree<Array>& state, const Tree<Array>& buffers,
                                   const StepData& data) const {
  std::vector<Array> all;
  const auto add_tree = [&](const char* what, const Tree<Array>& tree, std::size_t count) {
    if (tree.num_leaves() != count)
      throw UserError(name,
                      std::string(what) + " must have the leaves that the step was made for, " + std::to_string(count),
                      std::to_string(tree.num_leaves()) + " leaves", "a step made for these");
    for (const Array& leaf : tree.flatten()) all.push_back(leaf);
  };
  const auto add = [&](const char* what, const Array& array, bool taken, const std::string& remedy) {
    if (array.defined() != taken)
      throw UserError(name,
                      std::string(what) + (taken ? " must be given: the step takes it"
                                                 : " must not be given: the step does not take it"),
                      taken ? "an undefined array" : array.type().str(), remedy);
    if (taken) all.push_back(array);
  };
  const auto option = [](const char* what, bool taken) {
    return std::string("a step made with StepOptions{.") + what + " = " + (taken ? "false}" : "true}");
  };
  add_tree("params", params, num_params);
  add_tree("state", state, num_state);
  add_tree("buffers", buffers, num_buffers);
  if (data.x.empty()) throw UserError(name, "x must be given: the step takes it", "none");
  add_tree("x", data.x, num_inputs);
  for (auto leaf = all.end() - static_cast<std::ptrdiff_t>(num_inputs); leaf != all.end(); ++leaf)
    if (!leaf->defined()) throw UserError(name, "x must be given: the step takes it", "an undefined array");
  add("y", data.y, takes_y, "");
  add("key", data.key, takes_key, option("key", takes_key));
  add("lengths", data.lengths, takes_lengths, option("lengths", takes_lengths));
  add("sample_weights", data.sample_weights, takes_sample_weights, option("sample_weights", takes_sample_weights));
  return all;
}

std::shared_ptr<Graph> Step::graph() const { return trace(function, input_types, name); }

Step train_step(const nn::Layer& model, const losses::Loss& loss, const optim::Optimizer& optimizer,
                const Tree<Array>& params, const Tree<Array>& state, const Tree<ValueType>& x, const ValueType& y,
                const StepOptions& options) {
  const std::int64_t batch = checked_rows(x, y);
  nn::check_params("train_step", model, params);
  Step step;
  step.takes_y = true;
  step.takes_key = options.key;
  step.takes_lengths = options.lengths;
  step.takes_sample_weights = options.sample_weights;
  step.num_params = params.num_leaves();
  step.num_state = state.num_leaves();
  step.num_buffers = options.buffers.num_leaves();
  step.weighted = options.lengths || options.sample_weights || options.class_weights.defined();
  Inputs declare(step);
  declare.tree(params);
  const std::size_t at_state = declare.tree(state), at_buffers = declare.tree(options.buffers);
  const std::size_t at_x = declare.inputs(x), at_y = declare.add(y, 0);
  const std::size_t at_key = options.key ? declare.add({DType::U32, {2}}, -1) : 0;
  const std::size_t at_lengths = options.lengths ? declare.add({DType::I32, {batch}}, 0) : 0;
  const std::size_t at_weights = options.sample_weights ? declare.add({float_dtype(params, x), {batch}}, 0) : 0;

  const std::size_t p = step.num_params, s = step.num_state;
  const Tree<Array> buffers = options.buffers;
  const Array class_weights = options.class_weights;
  const bool weighted = step.weighted, watch = options.watch;
  const std::shared_ptr<std::vector<std::string>> watched = step.watched;
  step.function = [=](std::span<const Value> inputs) {
    // (params, what follows the state) -> loss, total weight, buffers, layers' outputs
    const auto loss_of = [=](std::span<const Value> in) {
      nn::Context context;
      context.training = true;
      if (at_key) context.key = in[at_key - s];
      if (at_lengths) context.lengths = in[at_lengths - s];
      context.buffers = buffers.unflatten(in.subspan(at_buffers - s, buffers.num_leaves()));
      std::vector<Value> layers;
      if (watch) {
        watched->clear();
        context.watch = [&](const std::string& layer, const Value& output) {
          watched->push_back("the output of layer " + layer);
          layers.push_back(output);
        };
      }
      const Value prediction =
          model.apply(params.unflatten(in.first(p)), x.unflatten(in.subspan(at_x - s, x.num_leaves())), context);
      losses::Weights weights;
      weights.lengths = context.lengths;
      if (at_weights) weights.samples = cast(in[at_weights - s], prediction.dtype());
      if (class_weights.defined()) weights.classes = constant(class_weights.cast(prediction.dtype()));
      const losses::Loss::Weighted result = loss(prediction, in[at_y - s], weights);
      std::vector<Value> outputs = {result.loss};
      if (weighted) outputs.push_back(result.total);
      append(outputs, context.buffers.flatten());
      append(outputs, layers);
      return outputs;
    };
    std::vector<Value> arguments(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(p));
    arguments.insert(arguments.end(), inputs.begin() + static_cast<std::ptrdiff_t>(at_state + s), inputs.end());
    std::vector<int> wanted(p);
    std::iota(wanted.begin(), wanted.end(), 0);
    const std::vector<Value> results = value_and_grad(loss_of, wanted)(arguments);
    const std::size_t at_new_buffers = weighted ? 2 : 1, at_layers = at_new_buffers + buffers.num_leaves();
    const std::size_t at_grads = at_layers + (watch ? watched->size() : 0);
    HOTLOOP_CHECK(results.size() == at_grads + p, "the model changed the structure of its buffers");
    const auto [new_params, new_state] =
        optimizer.update(params.unflatten(std::span(results).subspan(at_grads)),
                         state.unflatten(inputs.subspan(at_state, s)), params.unflatten(inputs.first(p)));
    std::vector<Value> outputs = new_params.flatten();
    append(outputs, new_state.flatten());
    outputs.insert(outputs.end(), results.begin() + static_cast<std::ptrdiff_t>(at_new_buffers),
                   results.begin() + static_cast<std::ptrdiff_t>(at_layers));
    outputs.insert(outputs.end(), results.begin(), results.begin() + static_cast<std::ptrdiff_t>(at_new_buffers));
    if (watch) {
      outputs.insert(outputs.end(), results.begin() + static_cast<std::ptrdiff_t>(at_layers), results.end());
      for (const std::string& name : params.names()) watched->push_back("the gradient of " + name);
    }
    return outputs;
  };
  return step;
}

Step many_steps(const Step& step, std::int64_t count) {
  if (count < 1) throw UserError("many_steps", "there must be at least one step a call", std::to_string(count));
  if (step.num_steps != 1) throw UserError("many_steps", "the step must be a single one", step.name);
  Step many = step;
  many.name = "train_steps";
  many.num_steps = count;
  const std::size_t carried = step.num_carried();
  for (std::size_t i = carried; i < many.input_types.size(); ++i)
    many.input_types[i].shape = many.input_types[i].shape.with_inserted(0, count);
  many.batch_axes.assign(many.input_types.size(), -1);
  many.function = [function = step.function, carried](std::span<const Value> in) {
    const auto body = [&](std::span<const Value> carry, std::span<const Value> batch) {
      std::vector<Value> all(carry.begin(), carry.end());
      all.insert(all.end(), batch.begin(), batch.end());
      const std::vector<Value> out = function(all);
      const auto split = out.begin() + static_cast<std::ptrdiff_t>(carried);
      return std::pair(std::vector<Value>(out.begin(), split), std::vector<Value>(split, out.end()));
    };
    auto [outputs, per_step] = scan(body, in.first(carried), in.subspan(carried));
    append(outputs, per_step);
    return outputs;
  };
  return many;
}

Array step_key(std::uint64_t seed, std::uint64_t step) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const std::uint64_t stream = nn::fold_in(seed, "step_key");
  const auto words = philox4x32({low(step), high(step), 0, 0}, {low(stream), high(stream)});
  return Array::from<std::uint32_t>({words[0], words[1]}, {2});
}

Step predict_step(const nn::Layer& model, const Tree<Array>& params, const Tree<ValueType>& x,
                  const StepOptions& options) {
  nn::check_params("predict", model, params);
  Step step;
  step.name = "predict";
  step.takes_lengths = options.lengths;
  step.num_params = params.num_leaves();
  step.num_buffers = options.buffers.num_leaves();
  Inputs declare(step);
  declare.tree(params);
  const std::size_t at_buffers = declare.tree(options.buffers), at_x = declare.inputs(x);
  const std::size_t at_lengths = options.lengths ? declare.add({DType::I32, {step.input_types[at_x].shape[0]}}, 0) : 0;
  step.function = [=, buffers = options.buffers](std::span<const Value> in) {
    nn::Context context;
    if (at_lengths) context.lengths = in[at_lengths];
    context.buffers = buffers.unflatten(in.subspan(at_buffers, buffers.num_leaves()));
    return std::vector<Value>{model.apply(params.unflatten(in.first(params.num_leaves())),
                                          x.unflatten(in.subspan(at_x, x.num_leaves())), context)};
  };
  return step;
}

Step observe_step(const optim::Optimizer& optimizer, const Tree<Array>& state) {
  Step step;
  step.name = "observe";
  step.num_state = state.num_leaves();
  Inputs declare(step);
  declare.tree(state);
  const std::size_t at_value = declare.add({DType::F64, {}}, -1);
  step.function = [=](std::span<const Value> in) {
    return optimizer.observe(state.unflatten(in.first(at_value)), in[at_value]).flatten();
  };
  return step;
}

}  // namespace hotloop::train
