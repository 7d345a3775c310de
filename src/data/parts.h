// The datasets of a table's parts: windows or series over rows that lie in stores.
#pragma once

#include <memory>
#include <vector>

#include "data/row_store.h"
#include "hotloop/dataset.h"

namespace hotloop::data {

// Prepared rows, shared by the parts: features [F] of dtype and targets [K] of target_dtype, by position.
struct PreparedRows {
  DType dtype = DType::F32, target_dtype = DType::F32;
  std::int64_t num_features = 0, num_targets = 0;
  std::unique_ptr<RowStore> features, targets;
};

// Windows: sample i has the rows last_rows[i] - length + 1 .. last_rows[i], its targets `horizon` rows later. Series: as many
// rows as lengths[i], its targets on the last. Inputs and targets are [length or longest, F] and [steps * K], classes [] or [steps].
class PartDataset : public Dataset {
 public:
  std::int64_t size() const override { return static_cast<std::int64_t>(last_rows.size()); }
  DType dtype() const override { return rows->dtype; }
  Shape input_shape() const override { return {length, rows->num_features}; }
  Shape target_shape() const override;
  DType target_dtype() const override { return rows->target_dtype; }
  bool has_lengths() const override { return unequal; }
  bool has_weights() const override { return !weights.empty(); }
  void gather(std::span<const std::int64_t> samples, const Batch& batch) const override;

  std::shared_ptr<const PreparedRows> rows;
  std::int64_t length = 1, horizon = 0, steps = 1;  // length: of the longest series
  bool unequal = false;                             // series of different lengths
  std::vector<std::int64_t> last_rows;              // positions
  std::vector<std::int32_t> lengths;                // of series; empty: all `length`
  std::vector<double> weights;                      // or none

 private:
  std::int64_t length_of(std::int64_t sample) const {
    return lengths.empty() ? length : lengths[static_cast<std::size_t>(sample)];
  }
};

}  // namespace hotloop::data
