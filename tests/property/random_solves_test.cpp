// Solves of differential equations put together at random: neural fields of states of several shapes, every solver and adjoint, steps that adapt or do
// not, output at times, steps or from the interpolant, events. What they give, their derivatives of every kind and batches of them are the oracle's.
#include <array>
#include <optional>

#include "derivative_checks.h"
#include "hotloop/ode.h"
#include "ode/registry.h"
#include "seeds.h"
#include "transformed.h"

namespace hotloop::testing {
namespace {

class RandomSolve {
 public:
  explicit RandomSolve(std::uint64_t seed)
      : rng(seed * 9173 + 3), dtype(pick(3) ? DType::F64 : DType::F32), size_(extent()), hidden_(extent()) {
    if (pick(4) == 0) rows_ = extent();
    has_partner_ = pick(4) == 0;
    form_ = pick(4);
    const Shape state = rows_ ? Shape{*rows_, size_} : Shape{size_};
    for (const Shape& shape : {Shape{size_, hidden_}, Shape{hidden_}, Shape{hidden_, size_}, Shape{size_}, Shape{}})
      arrays.push_back(random_like(rng, {dtype, shape}));
    arrays.push_back(random_like(rng, {dtype, state}));
    arrays.push_back(Array::full(dtype, {}, 0.7 + 0.1 * pick(5)));
    choose_method();
    choose_output();
  }

  // Weights (n, h), (h), (h, n), gains (n), a rate, the state ((rows,) n), the end -> rows of the solution, the state at the end, and when that was.
  std::vector<Value> operator()(std::span<const Value> v) const {
    const Tree<Value> args = {{"in", v[0]}, {"shift", v[1]}, {"out", v[2]}, {"gain", v[3]}, {"rate", v[4]}};
    const Tree<Value> y0 = has_partner_ ? Tree<Value>{{"y", v[5]}, {"z", v[4] * 0.5}} : Tree<Value>(v[5]);
    ode::Options options = options_;
    options.args = args;
    const double end = backwards_ ? -0.9 : 0.9;
    const ode::Scalar t1 = known_end_ ? ode::Scalar(end) : ode::Scalar(backwards_ ? -v[6] : v[6]);
    if (has_times_value_)
      options.saveat.ts_value = stack(std::array{v[6] * 0.0, v[6] * 0.3, v[6] * 0.8}, 0) * (backwards_ ? -1.0 : 1.0);
    const ode::Solution s =
        ode::solve([this](Value t, const Tree<Value>& y, const Tree<Value>& p) { return field(t, y, p); }, *solver_, 0,
                   t1, y0, options);
    std::vector<Value> out;
    for (const Value& leaf : s.ys.flatten()) out.push_back(finite(leaf));
    for (const Value& leaf : s.y1.flatten()) out.push_back(leaf);
    out.push_back(s.t1);
    if (options.saveat.dense)
      for (const Value& leaf : s.evaluate(s.t1 * 0.4).flatten()) out.push_back(leaf);
    return out;
  }
  static constexpr int num_weights = 5;

 private:
  int pick(int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); }
  std::int64_t extent() {
    constexpr std::int64_t extents[] = {1, 2, 3, 3, 5, 8};
    return extents[pick(6)];
  }
  // Rows that were not reached are inf.
  static Value finite(Value v) { return select(less(abs(v), constant(1e30, v.dtype(), v.shape())), v, zeros_like(v)); }

  Tree<Value> field(Value t, const Tree<Value>& state, const Tree<Value>& p) const {
    const Value y = has_partner_ ? state["y"] : state.leaf();
    const Value seen = form_ == 1 ? y * y * y : form_ == 2 ? tanh(y) + cos(3.0 * cast(t, dtype)) * 0.2 : y;
    const Value hidden = matmul(seen, p["in"]) + p["shift"];
    const Value change = matmul(form_ == 3 ? hidden * sigmoid(hidden) : tanh(hidden), p["out"]);
    const Value slope = change * 0.7 - y * abs(p["gain"]) + p["rate"] * 0.3;
    if (!has_partner_) return Tree<Value>(slope);
    return {{"y", slope + state["z"] * 0.2}, {"z", mean(y) * p["rate"] - state["z"]}};
  }

  void choose_method() {
    const auto all = ode::all_solvers();
    std::string name = "leapfrog";  // whose state is of another kind
    while (name == "leapfrog") name = all[rng() % all.size()].name;
    solver_ = ode::make_solver(name);
    const bool adaptive = solver_->rule().error_order() > 0 && pick(3) != 0;
    backwards_ = pick(4) == 0;
    options_.max_steps = 24;
    options_.dt0 = 0.08;
    if (adaptive) {
      if (pick(2)) options_.dt0 = std::nullopt;
      ode::PIDOptions pid;
      if (pick(2)) pid = {.pcoeff = 0.3, .icoeff = 0.4};
      options_.controller = ode::PID(1e-3, 1e-4, pid);
    } else {
      options_.controller = ode::ConstantStep();
    }
    const double at = backwards_ ? -0.3 : 0.3;
    if (pick(4) == 0) options_.controller = ode::Clip(options_.controller, {at}, {2 * at});
  }

  void choose_output() {
    const double sign = backwards_ ? -1 : 1;
    known_end_ = pick(2);
    switch (pick(5)) {
      case 0: break;
      case 1: options_.saveat = ode::SaveAt::times({0, 0.21 * sign, 0.22 * sign, 0.55 * sign}); break;
      case 2: has_times_value_ = true; break;
      case 3:
        // Where steps that adapt end is sensitive to rounding (an error estimate far below its bound is all rounding); what they lead to is not.
        if (!options_.controller.rule().is_adaptive()) options_.saveat = ode::SaveAt::every_step();
        break;
      default: options_.saveat = ode::SaveAt::interpolation();
    }
    options_.saveat.t0 = pick(3) == 0;
    if (options_.saveat.ts.empty() && !has_times_value_ && !options_.saveat.steps) options_.saveat.t1 = true;
    const bool at_known_times = known_end_ && !has_times_value_ && !options_.saveat.steps && !options_.saveat.dense;
    if (pick(4) == 0) {
      ode::Event event{.function = [](Value t, const Tree<Value>& y, const Tree<Value>& p) {
        return abs(t) - 0.37 - 0.1 * cast(p["rate"] + 0.0 * mean(y.flatten()[0]), t.dtype());
      }};
      event.terminal = pick(2) == 0;
      if (!event.terminal)
        event.change = [](Value, const Tree<Value>& y, const Tree<Value>&) {
          std::vector<Value> leaves = y.flatten();
          leaves[0] = leaves[0] * -0.5 + 0.1;
          return y.unflatten(leaves);
        };
      options_.events = {event};
    }
    // Adjoints of the equation are for known times, no events and solvers with an error estimate.
    const auto all = ode::all_adjoints();
    const bool any = at_known_times && options_.events.empty() && solver_->rule().error_order() > 0;
    const std::string name = solver_->rule().name();
    const bool is_coarse = name == "vern7" || name == "kvaerno5";  // which two adjoints refuse
    do adjoint_ = all[rng() % all.size()].name;
    while ((!any && adjoint_ != "discrete" && adjoint_ != "full_save" && adjoint_ != "checkpointed") ||
           (is_coarse && (adjoint_ == "gauss" || adjoint_ == "interpolating")));
    options_.adjoint = ode::make_adjoint(adjoint_);
  }

 public:
  std::string describe() const {
    return solver_->rule().name() + ", " + adjoint_ + (options_.events.empty() ? "" : ", an event") +
           (options_.saveat.dense   ? ", dense"
            : options_.saveat.steps ? ", every step"
                                    : "") +
           (options_.controller.rule().is_adaptive() ? ", adaptive" : "");
  }
  std::mt19937_64 rng;
  DType dtype;
  Arrays arrays;

 private:
  std::int64_t size_, hidden_;
  std::optional<std::int64_t> rows_;
  bool has_partner_ = false, backwards_ = false, known_end_ = true, has_times_value_ = false;
  int form_ = 0;
  std::optional<ode::Solver> solver_;
  std::string adjoint_;
  ode::Options options_;
};

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  RandomSolve solve(seed);
  SCOPED_TRACE(solve.describe());
  constexpr std::int64_t sizes[] = {1, 2, 3, 7, 17};
  // A batch of starts, of weights too, or of ends.
  const std::uint64_t of = seed / 11 % 3;
  std::vector<int> axes(RandomSolve::num_weights, of == 1 ? 0 : -1);
  axes.insert(axes.end(), {0, of == 2 ? 0 : -1});
  Subject it{.function = [&](std::span<const Value> v) { return solve(v); },
             .arrays = solve.arrays,
             .by = seed / 5 % 3 == 0 ? std::vector{5} : std::vector{0, 1, 2, 3, 4, 5},
             .axes = axes,
             .jacobian_by = static_cast<int>(seed / 7 % 6),
             .rows = sizes[seed / 17 % 5]};
  const Program program = transformed(it, seed % num_transforms, solve.rng);
  expect_compiled_is_the_oracles(program, solve.dtype == DType::F32 ? 2e-3 : 1e-8, seed, it.by);
}

TEST(RandomSolves, AreTheOracles) { for_seeds(check, 13); }

}  // namespace
}  // namespace hotloop::testing
