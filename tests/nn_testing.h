// Running layers and optimisers on arrays, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backends.h"
#include "hotloop/error.h"
#include "hotloop/nn.h"
#include "hotloop/ops.h"

namespace hotloop::testing {

// Traces fn for arrays of these types and runs it.
inline std::vector<Array> run_traced(const TracedFunction& fn, const std::vector<Array>& arrays,
                                     const Backend& backend = all_backends().front()) {
  std::vector<ValueType> types;
  for (const Array& a : arrays) types.push_back(a.type());
  return backend.run(trace(fn, types), arrays);
}

// model.apply on arrays; leaves of a state, if given, follow the output.
inline std::vector<Array> apply_on(const nn::Layer& model, const Tree<Array>& params, const Array& x,
                                   const Tree<Array>* state = nullptr,
                                   const Backend& backend = all_backends().front()) {
  std::vector<Array> arrays = params.flatten();
  const std::size_t p = arrays.size();
  arrays.push_back(x);
  if (state != nullptr)
    for (const Array& leaf : state->flatten()) arrays.push_back(leaf);
  return run_traced(
      [&](std::span<const Value> in) {
        nn::Context context;
        if (state != nullptr) context.state = state->unflatten(in.subspan(p + 1));
        std::vector<Value> outputs = {model.apply(params.unflatten(in.first(p)), in[p], context)};
        if (context.state)
          for (Value v : context.state->flatten()) outputs.push_back(v);
        return outputs;
      },
      arrays, backend);
}

// The largest |a - b| / max(1, |b|); infinity for another type or a NaN.
inline double difference(const Array& a, const Array& b) {
  if (a.type() != b.type()) return HUGE_VAL;
  double worst = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    if (a.at(i) == b.at(i)) continue;  // infinities too
    const double d = std::abs(a.at(i) - b.at(i)) / std::max(1.0, std::abs(b.at(i)));
    worst = d <= worst ? worst : std::isnan(d) ? HUGE_VAL : d;
  }
  return worst;
}

inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace hotloop::testing
