// Uses the installed headers and library: traces, differentiates, compiles and runs a small function.
#include <hotloop/hotloop.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const hotloop::TracedFunction loss = [](std::span<const hotloop::Value> x) {
    return std::vector<hotloop::Value>{hotloop::sum(hotloop::square(hotloop::tanh(x[0])))};
  };
  const hotloop::Jit gradient = hotloop::jit(hotloop::value_and_grad(loss, {0}));
  const std::vector<double> x = {-1.0, 0.0, 0.5, 2.0};
  const std::vector<hotloop::Array> out = gradient({hotloop::Array::from(x, {4})});
  double value = 0, error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double t = std::tanh(x[i]);
    value += t * t;
    error = std::max(error, std::fabs(out[1].data<double>()[i] - 2 * t * (1 - t * t)));
  }
  error = std::max(error, std::fabs(out[0].at(0) - value));
  std::printf("largest error %.2g\n", error);
  return error < 1e-13 ? 0 : 1;
}
