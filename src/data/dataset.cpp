#include <cstring>

#include "hotloop/data.h"
#include "hotloop/error.h"

namespace hotloop::data {

ArrayDataset::ArrayDataset(Array inputs, Array targets) : inputs_(std::move(inputs)), targets_(std::move(targets)) {
  const auto shapes = [&] { return inputs_.type().str() + " and " + targets_.type().str(); };
  if (inputs_.shape().rank() < 1 || targets_.shape().rank() < 1)
    throw UserError("dataset", "inputs and targets must have a leading axis of samples", shapes());
  if (inputs_.shape()[0] != targets_.shape()[0])
    throw UserError("dataset", "inputs and targets must have equally many samples", shapes());
  if (inputs_.dtype() != targets_.dtype() || !is_float(inputs_.dtype()))
    throw UserError("dataset", "inputs and targets must have the same dtype, f32 or f64", shapes());
}

void ArrayDataset::gather(std::span<const std::int64_t> samples, void* inputs, void* targets) const {
  const auto copy_rows = [&](const Array& from, void* to) {
    if (to == nullptr) return;
    const std::size_t bytes = from.bytes() / static_cast<std::size_t>(std::max<std::int64_t>(1, size()));
    auto* out = static_cast<std::byte*>(to);
    for (const std::int64_t sample : samples) {
      std::memcpy(out, static_cast<const std::byte*>(from.raw()) + static_cast<std::size_t>(sample) * bytes, bytes);
      out += bytes;
    }
  };
  copy_rows(inputs_, inputs);
  copy_rows(targets_, targets);
}

}  // namespace hotloop::data
