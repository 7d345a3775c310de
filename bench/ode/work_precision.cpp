// Solves of DETEST and stiff problems by each solver at many tolerances, for work_precision.py, which compares and draws them.
//
// usage: ode_work_precision problem solver t1 y0,... tolerance,...
// prints a line a tolerance: tolerance, seconds (best of 5), steps, evaluations, result, y(t1)...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>

#include "detest.h"
#include "hotloop/hotloop.h"
#include "ode/registry.h"

using namespace hotloop;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<double> numbers(const char* text) {
  std::vector<double> all;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) all.push_back(std::stod(item));
  return all;
}

ode::Field field_of(const std::string& name) {
  for (const testing::Detest& problem : testing::detest_problems())
    if (problem.name == name) return problem.field;
  return testing::stiff_problems().at(name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const ode::Field field = field_of(argv[1]);
  const ode::Solver solver = ode::make_solver(argv[2]);
  const double t1 = std::stod(argv[3]);
  const Array y0 = testing::vector_of(numbers(argv[4]));
  const auto solve = [&](std::span<const Value> in) {
    ode::Options options;
    options.controller = ode::PID(in[1], in[2]);
    options.max_steps = 2'000'000;
    const ode::Solution s = ode::solve(field, solver, 0, t1, Tree<Value>(in[0]), options);
    return std::vector<Value>{s.y1.leaf(), s.stats.num_steps, s.stats.num_evaluations, s.result};
  };
  const std::vector<ValueType> types = {y0.type(), {DType::F64, {}}, {DType::F64, {}}};
  const Executable run = compile(trace(solve, types));
  const bool stiff = std::string(argv[1]).size() > 2;
  for (const double tolerance : numbers(argv[5])) {
    const std::vector<Array> arguments = {y0, Array::scalar(tolerance), Array::scalar(tolerance * (stiff ? 1e-6 : 1))};
    std::vector<Array> out;
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double start = seconds();
      out = run(arguments);
      best = std::min(best, seconds() - start);
    }
    std::printf("%g %.3e %g %g %g", tolerance, best, out[1].at(0), out[2].at(0), out[3].at(0));
    for (std::int64_t i = 0; i < out[0].size(); ++i) std::printf(" %.17g", out[0].at(i));
    std::printf("\n");
  }
}
