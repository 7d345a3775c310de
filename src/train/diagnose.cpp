#include "train/diagnose.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hotloop/error.h"

namespace hotloop::train {
namespace {

std::int64_t count_non_finite(const Array& array) {
  return visit_dtype(array.dtype(), [&]<class T>(T) -> std::int64_t {
    if constexpr (std::is_floating_point_v<T>)
      return std::ranges::count_if(array.data<T>(), [](T v) { return !std::isfinite(v); });
    else
      return 0;
  });
}

std::string describe(const std::string& name, const Array& array) {
  return name + ", " + array.type().str() + ": " + std::to_string(count_non_finite(array)) + " of its " +
         std::to_string(array.size()) + " numbers are not finite";
}

// The arrays of one batch alone, of the size the step was made for.
Array first_of(const Array& stacked) {
  if (!stacked.defined()) return {};
  Array one(stacked.dtype(), stacked.shape().without(0));
  std::memcpy(one.raw(), stacked.raw(), one.bytes());
  return one;
}

// A copy of what has an axis 1 of `steps`, with zeros beyond the rows' own, where numbers play no part; else the array itself.
Array without_padding(const Array& array, const Array& lengths, std::int64_t steps) {
  if (!lengths.defined() || array.shape().rank() < 2 || array.shape()[1] != steps || array.bytes() == 0) return array;
  Array valid = array.clone();
  const auto rows = static_cast<std::size_t>(array.shape()[0]), per_row = array.bytes() / rows,
             per_step = per_row / static_cast<std::size_t>(steps);
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t length = static_cast<std::size_t>(lengths.data<std::int32_t>()[i]) * per_step;
    std::memset(static_cast<char*>(valid.raw()) + i * per_row + length, 0, per_row - length);
  }
  return valid;
}

}  // namespace

bool all_finite(const Array& array) { return count_non_finite(array) == 0; }
bool all_finite(std::span<const Array> arrays) {
  return std::ranges::all_of(arrays, [](const Array& a) { return all_finite(a); });
}

FirstNonFinite find_non_finite(const nn::Layer& model, const FitOptions& options, const StepTrees& trees,
                               std::span<const Array> carried, const Tree<ValueType>& x, const BatchBlock& block,
                               StepOptions step_options) {
  const StepData data = {.x = x.unflatten(block.x).map(first_of),
                         .y = first_of(block.y),
                         .key = first_of(block.key),
                         .lengths = first_of(block.lengths),
                         .sample_weights = first_of(block.weights)};
  step_options.watch = true;
  const Step step =
      train_step(model, options.loss, options.optimizer, trees.params, trees.state, x, data.y.type(), step_options);
  const std::shared_ptr<Graph> graph = step.graph();  // tracing fills in step.watched
  CompileOptions compile_options = options.compile;
  compile_options.batch_axes.clear();
  if (data.y.shape()[0] > 1) compile_options.batch_axes = step.batch_axes;
  const Executable program = compile(graph, compile_options);

  // Rows beyond the batch's own are zeros that the program does not read.
  std::vector<Array> inputs(carried.begin(), carried.end()), outputs;
  for (const Array& a : data.x.flatten()) inputs.push_back(a);
  for (const Array* a : {&data.y, &data.key, &data.lengths, &data.sample_weights})
    if (a->defined()) inputs.push_back(*a);
  for (const ValueType& type : program.output_types()) outputs.push_back(Array::zeros(type.dtype, type.shape));
  std::vector<void*> in, out;
  for (Array& a : inputs) in.push_back(a.raw());
  for (Array& a : outputs) out.push_back(a.raw());
  program.run_raw(in.data(), out.data(), block.rows);

  // In the order in which they are computed: gradients from the last layer to the first.
  std::vector<std::pair<std::string, Array>> seen;
  const std::size_t timed = data::timed_input(x);
  const Shape timed_shape = x.flatten()[timed].shape;
  const std::int64_t steps = timed_shape.rank() > 1 ? timed_shape[1] : 0;
  data.x.for_each([&](const std::string& name, const Array& leaf) {
    seen.emplace_back(name.empty() ? batch_inputs : batch_input + name + " of the batch",
                      seen.size() == timed ? without_padding(leaf, data.lengths, steps) : leaf);
  });
  seen.emplace_back(batch_targets, without_padding(data.y, data.lengths, steps));
  if (data.sample_weights.defined()) seen.emplace_back("the sample weights of the batch", data.sample_weights);
  const std::size_t first_watched = outputs.size() - step.watched->size();
  const std::size_t num_layers = step.watched->size() - step.num_params;
  for (std::size_t i = 0; i < num_layers; ++i) seen.emplace_back((*step.watched)[i], outputs[first_watched + i]);
  seen.emplace_back("the loss", outputs[step.num_carried()]);
  for (std::size_t i = step.watched->size(); i-- > num_layers;)
    seen.emplace_back((*step.watched)[i], outputs[first_watched + i]);
  const auto add_tree = [&](const std::string& what, const Tree<Array>& tree, std::size_t at) {
    for (const std::string& name : tree.names()) seen.emplace_back(what + name, outputs[at++]);
  };
  add_tree("the optimiser's state ", trees.state, step.num_params);
  add_tree("parameter ", trees.params, 0);
  add_tree("buffer ", trees.buffers, step.num_params + step.num_state);
  FirstNonFinite first;
  for (std::size_t i = num_layers; i < step.watched->size(); ++i)
    first.in_gradients = first.in_gradients || !all_finite(outputs[first_watched + i]);
  const auto found = std::ranges::find_if(seen, [](const auto& tensor) { return !all_finite(tensor.second); });
  if (found != seen.end()) first.tensor = describe(found->first, found->second);
  return first;
}

}  // namespace hotloop::train
