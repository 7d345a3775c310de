#include <algorithm>
#include <numeric>

#include "hotloop/error.h"
#include "hotloop/fit.h"
#include "hotloop/train.h"

namespace hotloop::train {
namespace {

Executable compile_prediction(const nn::Layer& model, const Tree<Array>& params, const data::Dataset& samples,
                              std::int64_t batch_size, CompileOptions options) {
  if (batch_size < 1) throw UserError("predict", "batch_size must be positive", std::to_string(batch_size));
  const Step step = predict_step(model, params, {samples.dtype(), samples.input_shape().with_inserted(0, batch_size)});
  options.batch_axes = step.batch_axes;
  return compile(step.graph(), options);
}

}  // namespace

Predictor::Predictor(const nn::Layer& model, const Tree<Array>& params, const data::Dataset& samples,
                     std::int64_t batch_size, CompileOptions options)
    : batch_size_(batch_size),
      executable_(compile_prediction(model, params, samples, batch_size, std::move(options))) {}

Array Predictor::operator()(const Tree<Array>& params, const data::Dataset& samples) const {
  std::vector<Array> leaves = params.flatten();
  const std::vector<ValueType>& types = executable_.input_types();
  bool fits = leaves.size() + 1 == types.size();
  for (std::size_t i = 0; fits && i < leaves.size(); ++i) fits = leaves[i].type() == types[i];
  if (!fits || types.back() != ValueType{samples.dtype(), samples.input_shape().with_inserted(0, batch_size_)})
    throw UserError("predict", "parameters and samples must have the types the predictor was made for",
                    std::to_string(leaves.size()) + " parameters, samples of shape " + samples.input_shape().str());

  const ValueType& output = executable_.output_types().front();
  Array x(samples.dtype(), types.back().shape);
  Array result(output.dtype, output.shape.without(0).with_inserted(0, samples.size()));
  const std::size_t row_bytes = static_cast<std::size_t>(output.shape.without(0).size()) * size_of(output.dtype);
  std::vector<void*> inputs;
  for (Array& leaf : leaves) inputs.push_back(leaf.raw());
  inputs.push_back(x.raw());
  // Rows go to a buffer of their own first: an output must be aligned as the executable expects.
  Array y(output.dtype, output.shape);
  std::vector<std::int64_t> rows;
  for (std::int64_t start = 0; start < samples.size(); start += batch_size_) {
    rows.resize(static_cast<std::size_t>(std::min(batch_size_, samples.size() - start)));
    std::iota(rows.begin(), rows.end(), start);
    samples.gather(rows, x.raw(), nullptr);
    void* outputs[] = {y.raw()};
    executable_.run_raw(inputs.data(), outputs, static_cast<std::int64_t>(rows.size()));
    std::copy_n(static_cast<const std::byte*>(y.raw()), rows.size() * row_bytes,
                static_cast<std::byte*>(result.raw()) + static_cast<std::size_t>(start) * row_bytes);
  }
  return result;
}

Array predict(const nn::Layer& model, const Tree<Array>& params, const data::Dataset& samples, std::int64_t batch_size,
              const CompileOptions& options) {
  return Predictor(model, params, samples, std::min(batch_size, std::max<std::int64_t>(1, samples.size())), options)(
      params, samples);
}

}  // namespace hotloop::train
