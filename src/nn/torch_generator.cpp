#include "nn/torch_generator.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "hotloop/error.h"

namespace hotloop::nn {
namespace {

// Two numbers from two uniform ones (Box and Muller 1958); `u` in (0, 1].
std::pair<double, double> normal_pair(double u, double turn) {
  const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * turn;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// The first half of 16 uniform numbers and the second become the two halves of 16 normal ones.
void make_normal(std::span<double, 16> v) {
  for (std::size_t i = 0; i < 8; ++i) std::tie(v[i], v[i + 8]) = normal_pair(1 - v[i], v[i + 8]);
}

}  // namespace

double TorchGenerator::unit_f64() {
  const std::uint64_t high = engine_(), low = engine_();
  return static_cast<double>((high << 32 | low) & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
}

double TorchGenerator::unit(DType dtype) {
  return dtype == DType::F64 ? unit_f64() : static_cast<double>(engine_() & 0xFFFFFF) * 0x1p-24;
}

Array TorchGenerator::uniform(const Shape& shape, DType dtype, double low, double high) {
  Array out(dtype, shape);
  if (dtype == DType::F64) {
    for (double& v : out.data<double>()) v = std::fma(unit_f64(), high - low, low);
    return out;
  }
  const auto from = static_cast<float>(low), width = static_cast<float>(high) - from;
  for (float& v : out.data<float>()) v = std::fma(static_cast<float>(unit(dtype)), width, from);
  return out;
}

double TorchGenerator::normal_f64() {
  if (spare_) return *std::exchange(spare_, std::nullopt);
  const double turn = unit_f64();
  const auto [first, second] = normal_pair(1 - unit_f64(), turn);
  spare_ = second;
  return first;
}

Array TorchGenerator::normal(const Shape& shape, DType dtype, double stddev) {
  Array out(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(out.size()));
  const std::size_t n = values.size();
  if (n < 16) {
    for (double& v : values) v = normal_f64();
  } else {
    for (double& v : values) v = unit(dtype);
    for (std::size_t i = 0; i + 16 <= n; i += 16) make_normal(std::span(values).subspan(i).first<16>());
    if (n % 16 != 0) {
      // The last 16 are drawn again, whole.
      const auto last = std::span(values).last<16>();
      for (double& v : last) v = unit(dtype);
      make_normal(last);
    }
  }
  for (std::size_t i = 0; i < n; ++i) out.set(static_cast<std::int64_t>(i), stddev * values[i]);
  return out;
}

std::vector<std::int64_t> TorchGenerator::permutation(std::int64_t n) {
  if (n >= std::int64_t{std::numeric_limits<std::uint32_t>::max()} / 20)
    throw UserError("generator", "PyTorch's order of samples is known for fewer than 2^32 / 20 of them",
                    std::to_string(n), "the default generator");
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    std::swap(order[i], order[i + engine_() % static_cast<std::uint32_t>(order.size() - i)]);
  return order;
}

}  // namespace hotloop::nn
