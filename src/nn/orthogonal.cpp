#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/init.h"

namespace hotloop::nn {
namespace {

// Orthonormal rows of m numbers each, by Gram-Schmidt.
class Rows {
 public:
  Rows(std::vector<double> values, std::size_t n, std::size_t m) : values_(std::move(values)), n_(n), m_(m) {}

  void orthonormalize() {
    for (std::size_t begin = 0; begin < n_; begin += block) {
      const std::size_t end = std::min(n_, begin + block);
      std::array<double, block> before;
      for (std::size_t j = begin; j < end; ++j) before[j - begin] = norm(j);
      // All of a block by the same few rows, while these are near.
      for (std::size_t k = 0; k < begin; k += group)
        for (std::size_t j = begin; j < end; ++j) project_out(k, begin, j);
      for (std::size_t j = begin; j < end; ++j) finish(begin, j, before[j - begin]);
    }
  }

  const std::vector<double>& values() const { return values_; }

 private:
  static constexpr std::size_t block = 8, group = 4, lanes = 4;

  // Takes the rows from `first` on out of row j, and again all before it as long as much less is left than there was, for orthogonality to
  // working precision (Daniel, Gragg, Kaufman and Stewart 1976).
  void finish(std::size_t first, std::size_t j, double before) {
    for (std::size_t k = first; k < j; k += group) project_out(k, j, j);
    double size = norm(j);
    while (size < 0.7 * before) {
      before = size;
      for (std::size_t k = 0; k < j; k += group) project_out(k, j, j);
      size = norm(j);
    }
    for (std::size_t i = 0; i < m_; ++i) row(j)[i] /= size;
  }

  // Takes what lies along `group` rows from k on, but not from `end` on, out of row j.
  void project_out(std::size_t k, std::size_t end, std::size_t j) {
    std::array<const double*, group> along;
    for (std::size_t g = 0; g < group; ++g) along[g] = row(std::min(k + g, end - 1));
    double* const x = row(j);
    double sums[group][lanes] = {};  // of each product as many as fill vectors
    const std::size_t whole = m_ / lanes * lanes;
    for (std::size_t i = 0; i < whole; i += lanes)
      for (std::size_t g = 0; g < group; ++g)
        for (std::size_t l = 0; l < lanes; ++l) sums[g][l] += along[g][i + l] * x[i + l];
    std::array<double, group> product{};  // 0 from `end` on
    for (std::size_t g = 0; g < group && k + g < end; ++g) {
      for (const double sum : sums[g]) product[g] += sum;
      for (std::size_t i = whole; i < m_; ++i) product[g] += along[g][i] * x[i];
    }
    for (std::size_t i = 0; i < m_; ++i)
      x[i] -= product[0] * along[0][i] + product[1] * along[1][i] + product[2] * along[2][i] + product[3] * along[3][i];
  }

  double norm(std::size_t j) {
    double square = 0;
    for (std::size_t i = 0; i < m_; ++i) square += row(j)[i] * row(j)[i];
    return std::sqrt(square);
  }

  double* row(std::size_t j) { return values_.data() + j * m_; }

  std::vector<double> values_;
  std::size_t n_, m_;
};

}  // namespace

Array orthogonal(const Seed& seed, const Shape& shape, DType dtype) {
  if (shape.rank() != 2) throw UserError("orthogonal", "the weight must be a matrix", shape.str());
  // Rows of a wide normal matrix, or columns of a tall one: R has a positive diagonal by construction.
  const bool tall = shape[0] >= shape[1];
  const auto m = static_cast<std::size_t>(tall ? shape[0] : shape[1]);
  const auto n = static_cast<std::size_t>(tall ? shape[1] : shape[0]);
  const Array start = normal(seed, {static_cast<std::int64_t>(n), static_cast<std::int64_t>(m)}, DType::F64);
  const auto numbers = start.data<double>();
  Rows q({numbers.begin(), numbers.end()}, n, m);
  q.orthonormalize();
  Array out(dtype, shape);
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = 0; i < m; ++i)
      out.set(static_cast<std::int64_t>(tall ? i * n + j : j * m + i), q.values()[j * m + i]);
  return out;
}

}  // namespace hotloop::nn
