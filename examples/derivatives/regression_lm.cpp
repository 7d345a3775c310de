// A small network fitted to a table by Levenberg-Marquardt: a few dozen steps in place of thousands of gradient steps.
//   regression_lm TABLE.csv TARGET INPUT...    e.g. regression_lm data/elecdemand.csv Demand Temperature WorkDay cycle:48 cycle:17520
#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>

#include "levenberg_marquardt.h"

using namespace hotloop;
using Values = std::span<const Value>;

int main(int argc, char** argv) try {
  if (argc < 4) return std::fprintf(stderr, "usage: regression_lm TABLE.csv TARGET INPUT...\n"), 2;
  const data::Table table = data::read_csv(argv[1]);
  const std::int64_t rows = table.num_rows(), most_rows = 4000;
  const std::int64_t every = std::max<std::int64_t>(1, (rows / most_rows) | 1), used = rows / every;
  // The target, then the inputs; "cycle:48" is the sine and cosine of a period of 48 rows.
  std::vector<std::vector<double>> columns;
  for (int k = 2; k < argc; ++k) {
    const std::string name = argv[k];
    const bool is_cycle = name.starts_with("cycle:");
    for (int phase = 0; phase < (is_cycle ? 2 : 1); ++phase) {
      std::vector<double>& column = columns.emplace_back();
      for (std::int64_t r = 0; r < used; ++r) {
        const auto row = static_cast<std::size_t>(r * every);
        const double angle = is_cycle ? 2 * std::numbers::pi * static_cast<double>(row) / std::stod(name.substr(6)) : 0;
        column.push_back(!is_cycle ? table[name][row] : phase == 0 ? std::sin(angle) : std::cos(angle));
      }
    }
  }
  for (std::vector<double>& column : columns) {  // mean 0, variance 1
    double mean = 0, square = 0;
    for (const double v : column) mean += v / static_cast<double>(used);
    for (const double v : column) square += (v - mean) * (v - mean) / static_cast<double>(used);
    for (double& v : column) v = (v - mean) / std::sqrt(std::max(square, 1e-30));
  }
  // Every fifth row is for the test.
  const auto inputs = static_cast<std::int64_t>(columns.size()) - 1;
  const std::int64_t num_test = used / 5, num_train = used - num_test;
  Array x(DType::F64, {num_train, inputs}), y(DType::F64, {num_train, 1});
  Array x_test(DType::F64, {num_test, inputs}), y_test(DType::F64, {num_test, 1});
  for (std::int64_t r = 0; r < used; ++r) {
    const bool is_test = r % 5 == 4;
    const std::int64_t to = is_test ? r / 5 : r - r / 5;
    const auto row = static_cast<std::size_t>(r);
    (is_test ? y_test : y).set(to, columns[0][row]);
    for (std::int64_t c = 0; c < inputs; ++c)
      (is_test ? x_test : x).set(to * inputs + c, columns[static_cast<std::size_t>(c) + 1][row]);
  }
  const std::vector<std::int64_t> widths{inputs, 12, 12, 1};
  const Function residual = [&](Values v) { return std::vector{sum(examples::apply_mlp(widths, v[0], v[1]) - v[2])}; };
  Array theta = examples::init_mlp(1, widths);
  const auto losses = examples::levenberg_marquardt(residual, theta, {x, y}, 40);
  const Array error = jit(vmap(residual, {-1, 0, 0}))({theta, x_test, y_test})[0];
  double test = 0;
  for (std::int64_t i = 0; i < num_test; ++i) test += error.at(i) * error.at(i) / static_cast<double>(num_test);
  const double train = losses.empty() ? 1 : losses.back() / static_cast<double>(num_train);
  std::printf(
      "%lld rows, %lld parameters, %zu steps: of the variance %.2f %% is left in training, %.2f %% in the test\n",
      static_cast<long long>(num_train), static_cast<long long>(theta.size()), losses.size(), 100 * train, 100 * test);
  return train < 1 && test < 1 ? 0 : 1;
} catch (const UserError& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
