#include "data/parts.h"

#include <algorithm>
#include <cstring>

namespace hotloop::data {

Shape PartDataset::target_shape() const {
  const std::int64_t numbers = steps * rows->num_targets;
  return is_float(rows->target_dtype) || numbers > 1 ? Shape{numbers} : Shape{};
}

void PartDataset::gather(std::span<const std::int64_t> samples, const Batch& batch) const {
  fill_defaults(samples.size(), batch);
  const std::size_t row_bytes = rows->features->row_bytes(), target_bytes = rows->targets->row_bytes();
  const std::size_t sample_bytes = static_cast<std::size_t>(length) * row_bytes;
  auto* inputs = static_cast<std::byte*>(batch.inputs);
  auto* targets = static_cast<std::byte*>(batch.targets);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t last = last_rows[static_cast<std::size_t>(samples[i])], count = length_of(samples[i]);
    if (inputs != nullptr) {
      rows->features->read(last - count + 1, count, inputs);
      const std::size_t used = static_cast<std::size_t>(count) * row_bytes;
      std::memset(inputs + used, 0, sample_bytes - used);
      inputs += sample_bytes;
    }
    if (targets != nullptr) {
      rows->targets->read(last + horizon, steps, targets);
      targets += static_cast<std::size_t>(steps) * target_bytes;
    }
    if (batch.lengths != nullptr) batch.lengths[i] = static_cast<std::int32_t>(count);
    if (batch.weights != nullptr && has_weights())
      visit_dtype(dtype(), [&]<class T>(T) {
        static_cast<T*>(batch.weights)[i] = static_cast<T>(weights[static_cast<std::size_t>(samples[i])]);
      });
  }
}

}  // namespace hotloop::data
