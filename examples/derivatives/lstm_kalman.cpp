// An extended Kalman filter whose dynamics are an LSTM: at every step the Jacobian of the network moves the covariance. A batch of
// filters over a whole series is one kernel: a scan with a Jacobian inside.
//   lstm_kalman [steps]
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "hotloop/hotloop.h"

using namespace hotloop;
using Values = std::span<const Value>;

constexpr std::int64_t filters = 32, hidden = 4, size = 2 * hidden;  // the state is (h, c)
constexpr double process_noise = 0.02, measurement_noise = 0.3;

// One step for a batch of states (B, 2H), driven by u (B, 1).
Value dynamics(const nn::LSTM& lstm, const Tree<Value>& params, Value state, Value u) {
  nn::Context context;
  context.state = Tree<Value>{{"h", narrow(state, 1, 0, hidden)}, {"c", narrow(state, 1, hidden, hidden)}};
  lstm.apply(params, expand_dims(u, 1), context);
  const Value parts[] = {(*context.state)["h"], (*context.state)["c"]};
  return concat(parts, 1);
}

int main(int argc, char** argv) {
  const std::int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200;
  const nn::LSTM lstm(1, hidden);
  Tree<Array> params = lstm.init(3, DType::F64);
  params = params.map([](const Array& a) {  // lively dynamics
    Array scaled = a.clone();
    for (std::int64_t i = 0; i < a.size(); ++i) scaled.set(i, 3 * a.at(i));
    return scaled;
  });
  const std::size_t n = params.num_leaves();

  // Inputs: parameters, drive (T, B, 1), noise of the system (T, B, 2H) and of the measurements (T, B). What is measured is the sum of h.
  const Jit run = jit([&](Values v) {
    const Tree<Value> p = params.unflatten(v.first(n));
    const Value zero = constant(0, DType::F64, {filters, size}),
                unit = cast(equal(iota(DType::I32, {size, size}, 0), iota(DType::I32, {size, size}, 1)), DType::F64);
    const Value covariance = broadcast_to(unit, {filters, size, size}) * 0.1;
    Array weights = Array::zeros(DType::F64, {size});
    for (std::int64_t i = 0; i < hidden; ++i) weights.set(i, 1);
    const Value measure = constant(weights);
    const Value init[] = {zero, zero, covariance}, xs[] = {v[n], v[n + 1], v[n + 2]};
    auto [last, ys] = scan(
        [&](Values carry, Values x) {
          const Function f = [&](Values s) { return std::vector{dynamics(lstm, p, s[0], x[0])}; };
          // The system, and what is measured of it.
          const Value truth = dynamics(lstm, p, carry[0], x[0]) + x[1];
          const Value measured = matmul(truth, measure) + x[2];
          // Prediction: P = J P J^T + Q, with J block-diagonal over the filters.
          const Value at[] = {carry[1]};
          const Value j = jacobian(f)(at).blocks(), predicted = f(at)[0];
          const Value moved = matmul(matmul(j, carry[2]), transpose(j, {0, 2, 1}));
          const Value p_predicted = moved + broadcast_to(unit, moved.shape()) * (process_noise * process_noise);
          // Correction by one number: the gain is a vector, and nothing is inverted.
          const Value ph = matmul(p_predicted, measure);  // (B, 2H)
          const Value s = matmul(ph, measure) + measurement_noise * measurement_noise;
          const Value gain = ph / broadcast(s, ph.shape(), {0});
          const Value innovation = measured - matmul(predicted, measure);
          const Value estimate = predicted + gain * broadcast(innovation, gain.shape(), {0});
          const Value p_new =
              p_predicted - broadcast(gain, moved.shape(), {0, 1}) * broadcast(ph, moved.shape(), {0, 2});
          const Value error = matmul(estimate - truth, measure), raw = measured - matmul(truth, measure);
          return std::pair{
              std::vector{truth, estimate, p_new},
              std::vector{mean(error * error), mean(raw * raw), mean(matmul(matmul(p_new, measure), measure))}};
        },
        init, xs);
    return std::vector{mean(ys[0]), mean(ys[1]), mean(ys[2])};
  });
  const auto scaled = [](Array a, double by) {
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, by * a.at(i));
    return a;
  };
  std::vector<Array> inputs = params.flatten();
  inputs.push_back(nn::normal(5, {steps, filters, 1}, DType::F64));
  inputs.push_back(scaled(nn::normal(6, {steps, filters, size}, DType::F64), process_noise));
  inputs.push_back(scaled(nn::normal(7, {steps, filters}, DType::F64), measurement_noise));
  run(inputs);
  KernelHistory::start();
  const std::vector<Array> result = run(inputs);
  const std::size_t launches = KernelHistory::stop().size();
  const double error = std::sqrt(result[0].at(0)), raw = std::sqrt(result[1].at(0)),
               believed = std::sqrt(result[2].at(0));
  std::printf(
      "%lld filters, %lld steps, %zu launch: error of the measurements %.4f, filtered %.4f (the filter believes "
      "%.4f)\n",
      static_cast<long long>(filters), static_cast<long long>(steps), launches, raw, error, believed);
  // A filter that works is better than its measurements and knows its own error.
  return launches == 1 && error < 0.5 * raw && believed > 0.7 * error && believed < 1.4 * error ? 0 : 1;
}
