#include "deploy/own_steps.h"

#include <cxxabi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "deploy/step_inputs.h"
#include "hotloop/cancel.h"
#include "hotloop/error.h"
#include "hotloop/init.h"
#include "hotloop/jit.h"

namespace hotloop {
namespace {

constexpr std::int64_t num_steps = 29;  // a prime, so that no other axis is as long by accident

std::string class_of(const nn::Module& module) {
  const char* const mangled = typeid(module).name();
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                         &std::free);
  return name ? name.get() : mangled;
}

[[noreturn]] void refuse(const nn::Module& module, const std::string& received) {
  throw UserError("stream",
                  "apply() of a module of one's own must treat each step alone, but for the state that initial_state() "
                  "gives and context.state "
                  "hands on",
                  class_of(module) + ", which " + received,
                  "initial_state() with that of the layers inside, each of which is given its part of context.state; a "
                  "Cell, in a Recurrent, for "
                  "what mixes steps; or the whole sequence");
}

Array random_input(std::uint64_t seed, const ValueType& type) {
  if (is_float(type.dtype)) return nn::normal(seed, type.shape, type.dtype, 1);
  Array x(type.dtype, type.shape);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i % 2));
  return x;
}

// Step t of a sequence [1, steps, ...].
Array step_of(const Array& x, std::int64_t t) {
  Shape shape = x.shape();
  shape[1] = 1;
  Array step(x.dtype(), shape);
  for (std::int64_t i = 0; i < step.size(); ++i) step.set(i, x.at(t * step.size() + i));
  return step;
}

// One module with numbers for all that it takes.
struct Probe {
  explicit Probe(const nn::OwnModules::Call& call)
      : layer(call.module), module(*call.module), is_leaf(call.inputs.is_leaf()) {
    const std::vector<ValueType> types = call.inputs.flatten();
    const auto first = std::ranges::find_if(types, [](const ValueType& t) { return is_float(t.dtype); });
    const DType dtype = first != types.end() ? first->dtype : DType::F32;
    std::uint64_t seed = 0;
    // What begins with zero, such as a gate around a sum over time, must not hide what it multiplies.
    params = layer.init(0, dtype).map([&](const Array& p) {
      if (!is_float(p.dtype())) return p;
      Array moved = p.clone();
      const Array by = nn::uniform(++seed, p.shape(), p.dtype(), 0.02, 0.1);
      for (std::int64_t i = 0; i < p.size(); ++i) moved.set(i, p.at(i) + by.at(i));
      return moved;
    });
    buffers = layer.init_buffers(dtype);
    state = initial_state(layer, 1, dtype);
    inputs = call.inputs.map([&](ValueType type) {
      const bool timed = has_a_step(type);
      type.shape[0] = 1;
      if (timed) type.shape[1] = num_steps;
      sequence.push_back(random_input(++seed, type));
      is_timed.push_back(timed);
      return type;
    });
  }

  // (params..., buffers..., state..., inputs...) -> (y, state...)
  std::vector<Value> apply(std::span<const Value> in) const {
    const std::size_t p = params.num_leaves(), b = buffers.num_leaves(), s = state.num_leaves();
    nn::Context context;
    context.buffers = buffers.unflatten(in.subspan(p, b));
    context.state = state.unflatten(in.subspan(p + b, s));
    const Tree<Value> x = inputs.unflatten(in.subspan(p + b + s));
    const Value y = is_leaf ? layer.apply(params.unflatten(in.first(p)), x.leaf(), context)
                            : layer.apply(params.unflatten(in.first(p)), x, context);
    std::vector<Value> out = {y};
    const std::vector<Value> after = context.state ? context.state->flatten() : std::vector<Value>();
    if (after.size() != s)
      refuse(module, "hands on a state of " + std::to_string(after.size()) + " leaves where initial_state() has " +
                         std::to_string(s));
    out.insert(out.end(), after.begin(), after.end());
    return out;
  }

  void check() {
    const Jit run([&](std::span<const Value> in) { return apply(in); });
    const auto outputs = [&](const std::vector<Array>& x) {
      std::vector<Array> in = params.flatten();
      for (const std::vector<Array>& more : {buffers.flatten(), state.flatten(), x})
        in.insert(in.end(), more.begin(), more.end());
      return run(in);
    };
    const std::string takes_none = "takes no sequence of " + std::to_string(num_steps) + " steps";
    Array whole;
    try {
      whole = outputs(sequence)[0];
    } catch (const UserError& error) {
      refuse(module, takes_none + ": [" + error.where() + "] " + error.requirement() + ", not " + error.received());
    } catch (const std::bad_alloc&) {  // no fault of the module's, as the next two
      throw;
    } catch (const Cancelled&) {
      throw;
    } catch (const InternalError&) {
      throw;
    } catch (const std::exception& error) {  // whatever a module of one's own throws
      refuse(module, takes_none + ": " + error.what());
    }
    const Shape& shape = whole.shape();
    std::optional<bool> has_time;
    for (std::int64_t t = 0; t < num_steps; ++t) {
      std::vector<Array> x = sequence;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (is_timed[i]) x[i] = step_of(x[i], t);
      std::vector<Array> given = outputs(x);
      const Array y = given[0];
      state = state.unflatten(std::span<const Array>(given).subspan(1));
      if (!has_time) has_time = shape.rank() > 1 && shape[1] == num_steps && y.shape().rank() > 1 && y.shape()[1] == 1;
      // Without an axis of time it is what the last step gives.
      if (!*has_time && t + 1 < num_steps) continue;
      const Array expected = *has_time ? step_of(whole, t) : whole;
      if (expected.shape() != y.shape())
        refuse(module, "gives " + whole.type().str() + " for a sequence of " + std::to_string(num_steps) +
                           " steps and " + y.type().str() + " for one step");
      for (std::int64_t i = 0; i < y.size(); ++i) {
        const double a = expected.at(i), b = y.at(i);
        if (!(std::fabs(a - b) <= tolerance * (1 + std::fabs(a))) && a != b && !(std::isnan(a) && std::isnan(b)))
          refuse(module, "gives other numbers for step " + std::to_string(t) + " than for that step of a sequence");
      }
    }
  }

  static constexpr double tolerance = 1e-3;
  nn::Layer layer;
  const nn::Module& module;
  bool is_leaf;
  Tree<Array> params, buffers, state;
  Tree<ValueType> inputs;
  std::vector<Array> sequence;
  std::vector<bool> is_timed;
};

}  // namespace

void check_own_steps(std::span<const nn::OwnModules::Call> calls) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    // A module that is called for several things is looked at once; without an axis of time there is nothing to look at.
    const bool is_first =
        std::ranges::none_of(calls.first(i), [&](const auto& c) { return c.module == calls[i].module; });
    if (is_first && std::ranges::any_of(calls[i].inputs.flatten(), has_a_step)) Probe(calls[i]).check();
  }
}

}  // namespace hotloop
