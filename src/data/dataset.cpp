#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/print_number.h"
#include "hotloop/data.h"
#include "hotloop/error.h"
#include "hotloop/nn.h"

namespace hotloop::data {

std::string str(const Tree<ValueType>& inputs) {
  std::string text;
  inputs.for_each([&](const std::string& name, const ValueType& type) {
    text += (text.empty() ? "" : ", ") + (name.empty() ? "" : name + " ") + type.str();
  });
  return text;
}

ValueType Dataset::input_type(std::int64_t num_samples) const {
  const Tree<ValueType> all = input_types(num_samples);
  if (!all.is_leaf())
    throw UserError("dataset", "there must be one input, which is no tree", str(all), "a dataset of one array");
  return all.leaf();
}

Tree<ValueType> Dataset::input_types(std::int64_t num_samples) const {
  return inputs().map([&](const ValueType& sample) {
    return ValueType{sample.dtype, sample.shape.with_inserted(0, num_samples)};
  });
}

std::size_t timed_input(const Tree<ValueType>& batch_inputs) { return nn::timed_input(batch_inputs); }

ValueType Dataset::target_type(std::int64_t num_samples) const {
  return {target_dtype(), target_shape().with_inserted(0, num_samples)};
}

void Dataset::fill_defaults(std::size_t num_samples, const Batch& batch) const {
  if (batch.lengths != nullptr && !has_lengths()) {
    const Tree<ValueType> all = inputs();
    const Shape shape = all.is_leaf() ? all.leaf().shape : all.flatten()[timed_input(input_types(1))].shape;
    std::fill_n(batch.lengths, num_samples, shape.rank() > 0 ? static_cast<std::int32_t>(shape[0]) : 1);
  }
  if (batch.weights != nullptr && !has_weights())
    visit_dtype(dtype(), [&]<class T>(T) { std::fill_n(static_cast<T*>(batch.weights), num_samples, T{1}); });
}

namespace {

bool is_index(DType dtype) { return dtype == DType::I32 || dtype == DType::I64; }

Array checked_lengths(const Array& lengths, const Array& inputs) {
  const std::int64_t n = inputs.shape()[0];
  if (!is_index(lengths.dtype()) || lengths.shape() != Shape{n} || inputs.shape().rank() < 2)
    throw UserError("dataset", "lengths must be one integer a sample, for inputs (samples, time, ...)",
                    lengths.type().str() + " for inputs " + inputs.type().str(),
                    "i32 of shape (" + std::to_string(n) + ",), the steps of each sample before its padding");
  const std::int64_t longest = inputs.shape()[1];
  for (std::int64_t i = 0; i < n; ++i)
    if (lengths.at(i) < 0 || lengths.at(i) > static_cast<double>(longest))
      throw UserError("dataset", "lengths must lie between 0 and the inputs' steps, " + std::to_string(longest),
                      std::to_string(static_cast<std::int64_t>(lengths.at(i))) + " for sample " + std::to_string(i),
                      std::to_string(longest) + " for a sample without padding");
  return lengths.cast(DType::I32);
}

Array checked_weights(const Array& weights, std::int64_t n, DType dtype) {
  if (weights.shape() != Shape{n})
    throw UserError("dataset", "weights must be one number a sample",
                    weights.type().str() + " for " + std::to_string(n) + " samples",
                    "an array of shape (" + std::to_string(n) + ",), 1 for a sample as any other");
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!(weights.at(i) >= 0) || !std::isfinite(weights.at(i)))
      throw UserError("dataset", "weights must be finite and not negative",
                      print_number(weights.at(i)) + " for sample " + std::to_string(i),
                      "0 for a sample that must not count");
    most = std::max(most, weights.at(i));
  }
  if (n > 0 && most == 0)
    throw UserError("dataset", "a sample must have a weight above 0", "0 for all " + std::to_string(n),
                    "1 for a sample as any other");
  return weights.cast(dtype);
}

// Row `sample` of `from` for each of the samples, one after another.
void copy_rows(const Array& from, std::span<const std::int64_t> samples, void* to) {
  if (to == nullptr || !from.defined()) return;
  const std::size_t bytes = from.bytes() / static_cast<std::size_t>(std::max<std::int64_t>(1, from.shape()[0]));
  auto* out = static_cast<std::byte*>(to);
  for (const std::int64_t sample : samples) {
    std::memcpy(out, static_cast<const std::byte*>(from.raw()) + static_cast<std::size_t>(sample) * bytes, bytes);
    out += bytes;
  }
}

}  // namespace

ArrayDataset::ArrayDataset(Tree<Array> inputs, Array targets, Array lengths, Array weights)
    : inputs_(std::move(inputs)), leaves_(inputs_.flatten()), targets_(std::move(targets)) {
  if (leaves_.empty())
    throw UserError("dataset", "there must be an input", "a tree without leaves",
                    "an array, or names with an array each");
  inputs_.for_each([](const std::string& name, const Array& leaf) {
    if (!leaf.defined())
      throw UserError("dataset", "inputs and targets must be arrays that are defined",
                      (name.empty() ? "inputs" : "input " + name) + " = Array(), which has no memory");
  });
  if (!targets_.defined())
    throw UserError("dataset", "inputs and targets must be arrays that are defined",
                    "targets = Array(), which has no memory");
  const auto types = [&] {
    return str(inputs_.map([](const Array& leaf) { return leaf.type(); })) + " and " + targets_.type().str();
  };
  std::vector<const Array*> all;
  for (const Array& leaf : leaves_) all.push_back(&leaf);
  all.push_back(&targets_);
  const auto each = [&](const auto& holds) {
    return std::ranges::all_of(all, [&](const Array* a) { return holds(*a); });
  };
  if (!each([](const Array& a) { return a.shape().rank() >= 1; }))
    throw UserError("dataset", "inputs and targets must have a leading axis of samples", types(),
                    "reshape() them to (samples, ...)");
  if (!each([&](const Array& a) { return a.shape()[0] == size(); }))
    throw UserError("dataset", "inputs and targets must have equally many samples", types());
  if (!each([](const Array& a) { return is_float(a.dtype()) || is_index(a.dtype()); }))
    throw UserError("dataset", "inputs and targets must be f32, f64, i32 or i64", types(),
                    "cast them to f32, classes to i32");
  const auto first_float = std::ranges::find_if(all, [](const Array* a) { return is_float(a->dtype()); });
  if (first_float != all.end()) {
    dtype_ = (*first_float)->dtype();
    if (!each([&](const Array& a) { return !is_float(a.dtype()) || a.dtype() == dtype_; }))
      throw UserError("dataset", "inputs and targets that are floats must have the same dtype", types(),
                      "cast one of them");
  } else if (weights.defined() && is_float(weights.dtype())) {
    dtype_ = weights.dtype();
  }
  if (lengths.defined()) lengths_ = checked_lengths(lengths, leaves_[timed_input(input_types(size()))]);
  if (weights.defined()) weights_ = checked_weights(weights, size(), dtype_);
}

Tree<ValueType> ArrayDataset::inputs() const {
  return inputs_.map([](const Array& leaf) { return ValueType{leaf.dtype(), leaf.shape().without(0)}; });
}

void ArrayDataset::gather(std::span<const std::int64_t> samples, const Batch& batch) const {
  fill_defaults(samples.size(), batch);
  for (std::size_t i = 0; i < leaves_.size(); ++i) copy_rows(leaves_[i], samples, batch.input(i));
  copy_rows(targets_, samples, batch.targets);
  copy_rows(lengths_, samples, batch.lengths);
  copy_rows(weights_, samples, batch.weights);
}

}  // namespace hotloop::data
