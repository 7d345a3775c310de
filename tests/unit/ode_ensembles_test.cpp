// Ensembles that save on the way, have implicit solvers or are differentiated: each trajectory is a row of a tile, and bit for bit what it is alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "hotloop/transforms.h"
#include "ode_problems.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using ode::Options;
using ode::SaveAt;
using Values = std::span<const Value>;

// (parameter, y0 (2,)) of one trajectory -> what is asked of its solve.
struct Ensemble {
  std::string name;
  TracedFunction one;
  DType dtype = DType::F64;
};
void PrintTo(const Ensemble& e, std::ostream* out) { *out << e.name; }

// Van der Pol's equation, which needs steps of very different lengths as its parameter grows.
Tree<Value> van_der_pol(Value, const Tree<Value>& y, const Tree<Value>& mu) {
  const Value x = take(y.leaf(), 0, 0), v = take(y.leaf(), 0, 1);
  const Value parts[] = {v, mu.leaf() * (1 - square(x)) * v - x};
  return Tree<Value>(stack(parts, 0));
}

Tree<Value> network(Value, const Tree<Value>& y, const Tree<Value>& scale) {
  static const nn::Sequential model(nn::Linear(2, 20), nn::Activation("tanh"), nn::Linear(20, 2));
  const Tree<Array> params = model.init(4, y.leaf().dtype());
  return Tree<Value>(scale.leaf() * model.apply(params.map([](const Array& a) { return constant(a); }), y.leaf()));
}

Ensemble ensemble(const std::string& name, const ode::Field& field, const ode::Solver& solver, const SaveAt& saveat,
                  DType dtype = DType::F64) {
  return {name,
          [=](Values in) {
            Options options;
            options.args = Tree<Value>(in[0]);
            options.saveat = saveat;
            options.controller = ode::PID(1e-4, 1e-6);
            options.max_steps = 96;
            const auto s = ode::solve(field, solver, 0, 1, Tree<Value>(in[1]), options);
            std::vector<Value> out = {s.y1.leaf(), s.stats.num_steps, s.stats.num_evaluations, s.result};
            if (s.ts.defined()) out.push_back(s.ys.leaf());
            if (s.dense) out.push_back(s.evaluate(like(in[0], 0.37)).leaf());
            return out;
          },
          dtype};
}

// The gradient of a loss of each trajectory, by its parameter and its start.
Ensemble gradient(const std::string& name, const ode::Solver& solver, const SaveAt& saveat,
                  const ode::Adjoint& adjoint) {
  const TracedFunction loss = [=](Values in) {
    Options options;
    options.args = Tree<Value>(in[0]);
    options.saveat = saveat;
    options.controller = ode::PID(1e-4, 1e-6);
    options.max_steps = 96;
    options.adjoint = adjoint;
    const auto s = ode::solve(van_der_pol, solver, 0, 1, Tree<Value>(in[1]), options);
    return std::vector<Value>{sum(square(s.ts.defined() ? s.ys.leaf() : s.y1.leaf()))};
  };
  return {name, grad(loss, {0, 1}), DType::F64};
}

std::vector<Ensemble> ensembles() {
  const SaveAt some = SaveAt::times(std::vector<double>{0, 0.1, 0.11, 0.12, 0.3, 0.8, 1});
  std::vector<Ensemble> all = {
      ensemble("at_times", van_der_pol, ode::Tsit5(), some),
      ensemble("at_times_f32", van_der_pol, ode::Dopri5(), some, DType::F32),
      ensemble("every_step", van_der_pol, ode::Tsit5(), SaveAt::every_step()),
      ensemble("dense", van_der_pol, ode::Bosh3(), SaveAt::interpolation()),
      ensemble("neural_at_times", network, ode::Tsit5(), some, DType::F32),
      ensemble("neural_kvaerno3", network, ode::Kvaerno3(), SaveAt::end()),
      ensemble("rodas5p_at_times", van_der_pol, ode::Rodas5P(), some),
  };
  all.push_back(gradient("gradient", ode::Tsit5(), SaveAt::end(), ode::Discrete()));
  all.push_back(gradient("gradient_of_saves", ode::Tsit5(), some, ode::Discrete()));
  all.push_back(gradient("gradient_of_rodas5p", ode::Rodas5P(), SaveAt::end(), ode::Discrete()));
  all.push_back(gradient("gradient_of_kvaerno3", ode::Kvaerno3(), SaveAt::end(), ode::Discrete()));
  for (const ode::Solver& solver :
       {ode::Solver(ode::Kvaerno3()), ode::Solver(ode::Kvaerno5()), ode::Solver(ode::Rodas5P()),
        ode::Solver(ode::Rosenbrock23()), ode::Solver(ode::ImplicitEuler())})
    all.push_back(ensemble(solver.rule().name(), van_der_pol, solver, SaveAt::end()));
  return all;
}

std::vector<Array> rows(std::int64_t n, DType dtype) {
  Array mu(dtype, {n}), y0(dtype, {n, 2});
  for (std::int64_t i = 0; i < n; ++i) {
    const double u = static_cast<double>((i * 7919) % 1009) / 1009;
    mu.set(i, 0.1 + 20 * u * u);
    y0.set(2 * i, 2 - u);
    y0.set(2 * i + 1, 0.3 * u);
  }
  return {mu, y0};
}

kernel::Program program_of(const TracedFunction& one, std::int64_t n, DType dtype) {
  const std::vector<ValueType> types = {{dtype, {n}}, {dtype, {n, 2}}};
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  return schedule(*passes::optimize(*trace(vmap(one, {0, 0}), types), {}), options);
}

class OdeEnsembles : public ::testing::TestWithParam<Ensemble> {};

TEST_P(OdeEnsembles, TrajectoriesAreRowsOfOneGridWhoseMemoryDoesNotGrow) {
  const auto few = program_of(GetParam().one, 2000, GetParam().dtype),
             many = program_of(GetParam().one, 2'000'000, GetParam().dtype);
  int grids = 0;
  for (const kernel::Stmt& stmt : many.body) {
    grids += std::holds_alternative<kernel::Grid>(stmt.node);
    EXPECT_FALSE(std::holds_alternative<kernel::For>(stmt.node)) << "a loop over whole batches";
  }
  EXPECT_EQ(grids, 1);
  EXPECT_LT(many.worker_bytes, 4 << 20);  // dense output and gradients keep all steps of a tile
  EXPECT_EQ(many.shared_bytes, few.shared_bytes);
}

// Solves stream through slots; the way back of a gradient reads what all iterations of its tile left, and stays in tiles.
TEST_P(OdeEnsembles, SolvesStream) {
  if (GetParam().name.starts_with("neural")) return;  // not claimed of layers of a network
  const auto program = program_of(GetParam().one, 20'000, GetParam().dtype);
  for (const kernel::Stmt& stmt : program.body)
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node))
      EXPECT_EQ(grid->slots > 0, !GetParam().name.starts_with("gradient"));
}

TEST_P(OdeEnsembles, TrajectoriesDoNotDependOnTheBatch) {
  const auto& [name, one, dtype] = GetParam();
  const auto same = [](const Array& a, std::int64_t from, const Array& b, std::int64_t at, std::int64_t rows) {
    const std::int64_t row = a.size() / a.shape()[0], bytes = static_cast<std::int64_t>(size_of(a.dtype()));
    return std::memcmp(static_cast<const char*>(a.raw()) + from * row * bytes,
                       static_cast<const char*>(b.raw()) + at * row * bytes,
                       static_cast<std::size_t>(rows * row * bytes)) == 0;
  };
  const auto all = rows(10'000, dtype);
  std::vector<std::vector<Array>> by_threads;
  for (const int threads : {1, 2}) {
    CompileOptions options;
    options.threads = threads;
    by_threads.push_back(jit(vmap(one, {0, 0}), options)(all));
  }
  const auto& whole = by_threads[0];
  for (std::size_t k = 0; k < whole.size(); ++k) EXPECT_TRUE(same(whole[k], 0, by_threads[1][k], 0, 10'000)) << k;
  for (const std::int64_t n : {1, 7, 16}) {
    const auto got = jit(vmap(one, {0, 0}))(rows(n, dtype));
    for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(same(whole[k], 0, got[k], 0, n)) << n << " " << k;
  }
  const Jit alone = jit(one);
  for (const std::int64_t i : {0, 1, 4999, 9999}) {
    Array mu(dtype, {}), y0(dtype, {2});
    mu.set(0, all[0].at(i));
    for (std::int64_t c = 0; c < 2; ++c) y0.set(c, all[1].at(2 * i + c));
    const auto got = alone({mu, y0});
    for (std::size_t k = 0; k < got.size(); ++k) {
      const Array& row = got[k];
      EXPECT_EQ(
          std::memcmp(row.raw(), static_cast<const char*>(whole[k].raw()) + static_cast<std::size_t>(i) * row.bytes(),
                      row.bytes()),
          0)
          << i << " " << k;
    }
  }
}

// The most points of a statement inside a loop that tests whether it goes on.
std::int64_t widest(const kernel::Block& block, bool in_loop) {
  std::int64_t most = 0;
  for (const kernel::Stmt& stmt : block) {
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) most = std::max(most, widest(grid->body, in_loop));
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node))
      most = std::max(most, widest(loop->body, in_loop || !loop->test.empty()));
    const auto* map = std::get_if<kernel::Map>(&stmt.node);
    if (map == nullptr || !in_loop) continue;
    std::int64_t points = 1;
    for (const kernel::Dim& dim : map->dims) points *= dim.extent.bound;
    most = std::max(most, points);
  }
  return most;
}

// A step writes the rows that it saves: it neither copies nor chooses among all there are, for trajectories that have finished either.
TEST(OdeEnsembleSteps, AStepTouchesNoRowButItsOwn) {
  const SaveAt many = SaveAt::times(std::vector<double>(1000, 0.5));
  for (const SaveAt& saveat : {many, SaveAt::every_step(), SaveAt::interpolation()}) {
    Ensemble e = ensemble("", van_der_pol, ode::Tsit5(), saveat);
    EXPECT_LE(widest(program_of(e.one, 2000, DType::F32).body, false), 64 * 2);
  }
}

// The gradient of a sum over trajectories, by what they share: blocks of them have sums of their own, whoever computes these.
TEST(OdeEnsembleGradients, OfASumDoNotDependOnThreads) {
  const SaveAt some = SaveAt::times(std::vector<double>{0.3, 1});
  for (const SaveAt& saveat : {SaveAt::end(), some}) {
    const TracedFunction one = [&](Values in) {
      Options options;
      options.args = Tree<Value>(in[0]);
      options.saveat = saveat;
      options.max_steps = 64;
      const auto s = ode::solve(van_der_pol, ode::Tsit5(), 0, 1, Tree<Value>(in[1]), options);
      return std::vector<Value>{sum(square(s.ts.defined() ? s.ys.leaf() : s.y1.leaf()))};
    };
    const TracedFunction total = [&](Values in) { return std::vector<Value>{sum(vmap(one, {-1, 0})(in)[0])}; };
    const auto all = rows(900, DType::F64);
    const std::vector<Array> inputs = {Array::scalar(3.0), all[1]};
    std::vector<Array> by_threads;
    for (const int threads : {1, 2}) {
      CompileOptions options;
      options.threads = threads;
      by_threads.push_back(jit(grad(total, {0}), options)(inputs)[0]);
    }
    EXPECT_EQ(by_threads[0].at(0), by_threads[1].at(0));
    const auto each = jit(vmap(grad(one, {0}), {-1, 0}))(inputs)[0];
    double wanted = 0;
    for (std::int64_t i = 0; i < each.size(); ++i) wanted += each.at(i);
    EXPECT_NEAR(by_threads[0].at(0), wanted, 1e-11 * std::abs(wanted));
  }
}

INSTANTIATE_TEST_SUITE_P(All, OdeEnsembles, ::testing::ValuesIn(ensembles()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop
