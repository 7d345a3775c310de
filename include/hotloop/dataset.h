// Datasets: what fit() draws batches from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotloop/array.h"
#include "hotloop/tree.h"

namespace hotloop::data {

// Memory for the samples of one batch, one after another along axis 0. What is null is not wanted.
struct Batch {
  void* inputs = nullptr;                   // [n, input_shape...] of input_dtype
  void* targets = nullptr;                  // [n, target_shape...] of target_dtype
  std::int32_t* lengths = nullptr;          // [n]: steps of each series that are there; the others are zero
  void* weights = nullptr;                  // [n] of dtype: of each sample in the loss
  std::span<void* const> more_inputs = {};  // of a dataset of several inputs, those after the first

  // By its place among the leaves of Dataset::inputs().
  void* input(std::size_t leaf) const {
    if (leaf == 0) return inputs;
    return leaf <= more_inputs.size() ? more_inputs[leaf - 1] : nullptr;
  }
};

// What fit() draws batches from: samples of one input, or a tree of inputs, and one target array each; each array has one shape and
// dtype in all samples. Series of unequal lengths are padded with zeros after their last step and have lengths.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;   // number of samples
  virtual DType dtype() const = 0;         // f32 or f64: of the arithmetic, of weights and of float inputs and targets
  virtual Shape input_shape() const = 0;   // of one sample; of several inputs, the first one's
  virtual Shape target_shape() const = 0;  // of one sample
  virtual DType input_dtype() const { return dtype(); }   // or i32, i64: indices, for an embedding
  virtual DType target_dtype() const { return dtype(); }  // or i32, i64: classes
  // Types of one sample's inputs. By default there is one, a leaf; names are those by which a model takes several.
  virtual Tree<ValueType> inputs() const { return ValueType{input_dtype(), input_shape()}; }
  virtual bool has_lengths() const { return false; }
  virtual bool has_weights() const { return false; }
  // Copies the given samples into `batch`. Lengths without has_lengths() are the first axis of the input, of several of the one that
  // timed_input() tells; weights without has_weights() one. Must be safe to call from several threads at once.
  virtual void gather(std::span<const std::int64_t> samples, const Batch& batch) const = 0;

  ValueType input_type(std::int64_t num_samples) const;         // of a batch; UserError for several inputs
  Tree<ValueType> input_types(std::int64_t num_samples) const;  // of a batch
  ValueType target_type(std::int64_t num_samples) const;        // of a batch

 protected:
  // What gather() writes for lengths and weights that the dataset does not have.
  void fill_defaults(std::size_t num_samples, const Batch& batch) const;
};

// nn::timed_input(): which leaf of the inputs of a batch the lengths count the steps of.
std::size_t timed_input(const Tree<ValueType>& batch_inputs);

// "f32[32,50,3]" of one, "series f32[32,50,3], facts f32[32,4]" of several.
std::string str(const Tree<ValueType>& inputs);

// Samples along axis 0 of arrays.
//
//   data::ArrayDataset samples(x, y);
//   data::ArrayDataset both({{"series", series}, {"facts", facts}}, y);
class ArrayDataset : public Dataset {
 public:
  // inputs [N, ...] and targets [N, ...]: float (f32 or f64, all the same), i32 or i64; lengths [N], integers from 0 to
  // the extent of axis 1 of timed_input(); weights [N], float. UserError for other shapes, dtypes and values.
  ArrayDataset(Tree<Array> inputs, Array targets, Array lengths = {}, Array weights = {});
  std::int64_t size() const override { return targets_.shape()[0]; }
  DType dtype() const override { return dtype_; }
  Shape input_shape() const override { return leaves_.front().shape().without(0); }
  Shape target_shape() const override { return targets_.shape().without(0); }
  DType input_dtype() const override { return leaves_.front().dtype(); }
  DType target_dtype() const override { return targets_.dtype(); }
  Tree<ValueType> inputs() const override;
  bool has_lengths() const override { return lengths_.defined(); }
  bool has_weights() const override { return weights_.defined(); }
  void gather(std::span<const std::int64_t> samples, const Batch& batch) const override;

 private:
  Tree<Array> inputs_;
  std::vector<Array> leaves_;  // of inputs_
  Array targets_, lengths_, weights_;
  DType dtype_ = DType::F32;
};

}  // namespace hotloop::data
