#include "ops/rules/sampling.h"

namespace hotloop::ir {

Array random_array(Rng& rng, DType dtype, const Shape& shape, double low, double high) {
  Array a(dtype, shape);
  std::uniform_real_distribution<double> real(low, high);
  std::uniform_int_distribution<std::int64_t> whole(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high));
  for (std::int64_t i = 0; i < a.size(); ++i)
    a.set(i, is_float(dtype)        ? real(rng)
             : dtype == DType::Bool ? static_cast<double>(rng() >> 63)
                                    : static_cast<double>(whole(rng)));
  return a;
}

Array random_signed(Rng& rng, DType dtype, const Shape& shape, double low, double high) {
  Array a = random_array(rng, dtype, shape, low, high);
  for (std::int64_t i = 0; i < a.size(); ++i)
    if (rng() >> 63) a.set(i, -a.at(i));
  return a;
}

const std::vector<Shape>& sample_shapes() {
  static const std::vector<Shape> shapes = {{}, {1}, {7}, {3, 5}, {2, 1, 3}};
  return shapes;
}

std::vector<Sample> uniform_samples(Rng& rng, DType dtype, int num_operands, double low, double high) {
  std::vector<Sample> samples;
  for (const Shape& shape : sample_shapes()) {
    Sample& s = samples.emplace_back();
    for (int i = 0; i < num_operands; ++i) s.operands.push_back(random_array(rng, dtype, shape, low, high));
  }
  return samples;
}

std::vector<Sample> signed_samples(Rng& rng, DType dtype) {
  std::vector<Sample> samples;
  for (const Shape& shape : sample_shapes()) samples.push_back({{random_signed(rng, dtype, shape)}, {}, {}});
  for (DType d : {DType::I32, DType::U32, DType::I64})
    samples.push_back({{random_array(rng, d, {9}, d == DType::U32 ? 0 : -4, 4)}, {}, {}});
  return samples;
}

}  // namespace hotloop::ir
