// Uses the installed headers and library: traces, differentiates, compiles and runs a small function.
#include <hotloop/hotloop.h>

#include <cmath>
#include <cstdio>
#include <vector>

// Options given in part, by a project with all warnings on.
const hotloop::CompileOptions compile_options{.threads = 1};
const hotloop::StreamOptions stream_options{.batch = 2};
const hotloop::losses::Weights weights{.lengths = {}};
const hotloop::ode::PIDOptions pid{.pcoeff = 0.3};
const hotloop::ode::SaveAt save_at{.t1 = true};
const hotloop::train::StepOptions step_options{.key = true};

int main() {
  const hotloop::TracedFunction loss = [](std::span<const hotloop::Value> x) {
    return std::vector<hotloop::Value>{hotloop::sum(hotloop::square(hotloop::tanh(x[0])))};
  };
  const hotloop::Jit gradient = hotloop::jit(hotloop::value_and_grad(loss, {0}), compile_options);
  const std::vector<double> x = {-1.0, 0.0, 0.5, 2.0};
  const std::vector<hotloop::Array> out = gradient({hotloop::Array::from(x, {4})});
  double value = 0;
  bool right = true;
  const auto check = [&](double got, double expected) {
    const bool close = std::fabs(got - expected) <= 1e-14 * (1 + std::fabs(expected));  // false for NaN
    std::printf("%-6s %.17g, expected %.17g\n", close ? "ok" : "WRONG", got, expected);
    right = right && close;
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double t = std::tanh(x[i]);
    value += t * t;
    check(out[1].data<double>()[i], 2 * t * (1 - t * t));
  }
  check(out[0].at(0), value);
  return right ? 0 : 1;
}
