// Datasets: what fit() draws batches from.
#pragma once

#include <cstdint>
#include <span>

#include "hotloop/array.h"

namespace hotloop::data {

// Memory for the samples of one batch, one after another along axis 0. What is null is not wanted.
struct Batch {
  void* inputs = nullptr;           // [n, input_shape...] of input_dtype
  void* targets = nullptr;          // [n, target_shape...] of target_dtype
  std::int32_t* lengths = nullptr;  // [n]: steps of each series that are there; the others are zero
  void* weights = nullptr;          // [n] of dtype: of each sample in the loss
};

// What fit() draws batches from: samples of one input and one target array each, all of one shape and dtype. Series of
// unequal lengths are padded with zeros after their last step and have lengths.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;   // number of samples
  virtual DType dtype() const = 0;         // f32 or f64: of the arithmetic, of weights and of float inputs and targets
  virtual Shape input_shape() const = 0;   // of one sample
  virtual Shape target_shape() const = 0;  // of one sample
  virtual DType input_dtype() const { return dtype(); }   // or i32, i64: indices, for an embedding
  virtual DType target_dtype() const { return dtype(); }  // or i32, i64: classes
  virtual bool has_lengths() const { return false; }
  virtual bool has_weights() const { return false; }
  // Copies the given samples into `batch`. Lengths without has_lengths() are the first axis of the inputs, weights
  // without has_weights() one. Must be safe to call from several threads at once.
  virtual void gather(std::span<const std::int64_t> samples, const Batch& batch) const = 0;

  ValueType input_type(std::int64_t num_samples) const;   // of a batch
  ValueType target_type(std::int64_t num_samples) const;  // of a batch

 protected:
  // What gather() writes for lengths and weights that the dataset does not have.
  void fill_defaults(std::size_t num_samples, const Batch& batch) const;
};

// Samples along axis 0 of arrays.
class ArrayDataset : public Dataset {
 public:
  // inputs [N, ...] and targets [N, ...]: float (f32 or f64, both the same), i32 or i64; lengths [N], integers from 0 to
  // the extent of the inputs' axis 1; weights [N], float. UserError for other shapes, dtypes and values.
  ArrayDataset(Array inputs, Array targets, Array lengths = {}, Array weights = {});
  std::int64_t size() const override { return inputs_.shape()[0]; }
  DType dtype() const override { return dtype_; }
  Shape input_shape() const override { return inputs_.shape().without(0); }
  Shape target_shape() const override { return targets_.shape().without(0); }
  DType input_dtype() const override { return inputs_.dtype(); }
  DType target_dtype() const override { return targets_.dtype(); }
  bool has_lengths() const override { return lengths_.defined(); }
  bool has_weights() const override { return weights_.defined(); }
  void gather(std::span<const std::int64_t> samples, const Batch& batch) const override;

 private:
  Array inputs_, targets_, lengths_, weights_;
  DType dtype_ = DType::F32;
};

}  // namespace hotloop::data
