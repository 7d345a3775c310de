#include <algorithm>
#include <cstring>
#include <numeric>

#include "hotloop/error.h"
#include "hotloop/fit.h"
#include "hotloop/train.h"
#include "nn/check_params.h"

namespace hotloop::train {
namespace {

Executable compile_prediction(const nn::Layer& model, const Tree<Array>& params, const Tree<Array>& buffers,
                              const Tree<ValueType>& x, bool lengths, CompileOptions options) {
  const std::vector<ValueType> leaves = x.flatten();
  if (leaves.empty()) throw UserError("predict", "there must be an input", "a tree without leaves");
  const std::int64_t rows = leaves[0].shape.rank() > 0 ? leaves[0].shape[0] : 0;
  for (const ValueType& leaf : leaves)
    if (leaf.shape.rank() == 0 || leaf.shape[0] < 1)
      throw UserError("predict", "batch_size must be positive",
                      leaf.shape.rank() == 0 ? leaf.str() : std::to_string(leaf.shape[0]));
    else if (leaf.shape[0] != rows)
      throw UserError("predict", "all inputs must have the same number of rows", data::str(x));
  const Step step = predict_step(model, params, x, {.lengths = lengths, .buffers = buffers});
  // A batch of one row has no other number of rows, and its axis is hard to tell from others of extent 1.
  if (rows > 1) options.batch_axes = step.batch_axes;
  return compile(step.graph(), options);
}

// A call with given parameters: its inputs, and memory for one batch of outputs.
class Call {
 public:
  Call(const Executable& executable, const Tree<Array>& params, const Tree<Array>& buffers)
      : executable_(executable), y_(executable.output_types().front().dtype, executable.output_types().front().shape) {
    for (const Tree<Array>* tree : {&params, &buffers})
      for (const Array& leaf : tree->flatten()) leaves_.push_back(leaf);
    for (Array& leaf : leaves_) inputs_.push_back(leaf.raw());
  }

  // Rows go to memory of their own first: an output must be aligned as the executable expects.
  void run(std::span<const Array> x, const Array& lengths, std::int64_t rows, void* to) {
    std::vector<void*> inputs = inputs_;
    for (const Array& leaf : x) inputs.push_back(const_cast<void*>(leaf.raw()));
    if (lengths.defined()) inputs.push_back(const_cast<void*>(lengths.raw()));
    void* outputs[] = {y_.raw()};
    executable_.run_raw(inputs.data(), outputs, rows);
    std::memcpy(to, y_.raw(), static_cast<std::size_t>(rows) * row_bytes());
  }
  std::size_t row_bytes() const { return y_.bytes() / static_cast<std::size_t>(y_.shape()[0]); }
  Array rows(std::int64_t n) const { return {y_.dtype(), y_.shape().without(0).with_inserted(0, n)}; }

 private:
  const Executable& executable_;
  Array y_;
  std::vector<Array> leaves_;
  std::vector<void*> inputs_;
};

}  // namespace

Predictor::Predictor(const nn::Layer& model, const Tree<Array>& params, const Tree<Array>& buffers,
                     const Tree<ValueType>& x, bool lengths, CompileOptions options)
    : input_names_(x.names()),
      lengths_(lengths),
      executable_(compile_prediction(model, params, buffers, x, lengths, std::move(options))) {}

Predictor::Predictor(const nn::Layer& model, const Tree<Array>& params, const Tree<Array>& buffers,
                     const data::Dataset& samples, std::int64_t batch_size, CompileOptions options)
    : Predictor(model, params, buffers, samples.input_types(batch_size), samples.has_lengths(), std::move(options)) {}

std::int64_t Predictor::batch_size() const { return executable_.output_types().front().shape[0]; }
ValueType Predictor::output_type() const { return executable_.output_types().front(); }

void Predictor::check(const Tree<Array>& params, const Tree<Array>& buffers, const Tree<ValueType>& x,
                      bool lengths) const {
  nn::check_defined("predict", "params", params);
  nn::check_defined("predict", "buffers", buffers);
  const std::vector<ValueType>& types = executable_.input_types();
  std::vector<ValueType> given;
  for (const Tree<Array>* tree : {&params, &buffers})
    for (const Array& leaf : tree->flatten()) given.push_back(leaf.type());
  for (const ValueType& leaf : x.flatten()) given.push_back(leaf);
  if (lengths)
    given.push_back({DType::I32, {given.empty() || given.back().shape.rank() == 0 ? 0 : given.back().shape[0]}});
  if (given != types || x.names() != input_names_)
    throw UserError("predict", "parameters and samples must have the types the predictor was made for",
                    std::to_string(given.size()) + " arrays, samples of type " + data::str(x));
}

Array Predictor::batch(const Tree<Array>& params, const Tree<Array>& buffers, const Tree<Array>& x,
                       const Array& lengths, std::int64_t rows) const {
  check(params, buffers, x.map([](const Array& leaf) { return leaf.type(); }), lengths.defined());
  if (rows < 0 || rows > batch_size())
    throw UserError("predict", "rows must be at most the batch's " + std::to_string(batch_size()),
                    std::to_string(rows));
  Call call(executable_, params, buffers);
  Array result = call.rows(rows);
  if (rows > 0) call.run(x.flatten(), lengths, rows, result.raw());
  return result;
}

Array Predictor::operator()(const Tree<Array>& params, const Tree<Array>& buffers, const data::Dataset& samples) const {
  const Tree<ValueType> x_types = samples.input_types(batch_size());
  check(params, buffers, x_types, samples.has_lengths());
  std::vector<Array> x;
  for (const ValueType& type : x_types.flatten()) x.push_back(Array::zeros(type.dtype, type.shape));
  std::vector<void*> more_inputs;
  for (std::size_t i = 1; i < x.size(); ++i) more_inputs.push_back(x[i].raw());
  Array lengths;
  if (lengths_) lengths = Array::zeros(DType::I32, {batch_size()});
  Call call(executable_, params, buffers);
  Array result = call.rows(samples.size());
  std::vector<std::int64_t> rows;
  for (std::int64_t start = 0; start < samples.size(); start += batch_size()) {
    rows.resize(static_cast<std::size_t>(std::min(batch_size(), samples.size() - start)));
    std::iota(rows.begin(), rows.end(), start);
    samples.gather(rows, {.inputs = x[0].raw(),
                          .lengths = lengths_ ? lengths.data<std::int32_t>().data() : nullptr,
                          .more_inputs = more_inputs});
    call.run(x, lengths, static_cast<std::int64_t>(rows.size()),
             static_cast<std::byte*>(result.raw()) + static_cast<std::size_t>(start) * call.row_bytes());
  }
  return result;
}

Array predict(const nn::Layer& model, const Tree<Array>& params, const data::Dataset& samples, std::int64_t batch_size,
              const CompileOptions& options, const Tree<Array>& buffers) {
  return Predictor(model, params, buffers, samples, std::min(batch_size, std::max<std::int64_t>(1, samples.size())),
                   options)(params, buffers, samples);
}

}  // namespace hotloop::train
