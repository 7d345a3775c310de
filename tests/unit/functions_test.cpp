// Functions of structures beside the flat ones they are made of.
#include "hotloop/functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/structured_jit.h"

namespace hotloop {
namespace {

Array numbers(std::vector<double> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return Array::from(values, {n});
}

template <class T> struct Pair {
  Tree<T> tree;
  std::vector<T> list;
  auto members() { return std::tie(tree, list); }
};

static_assert(ValueStructure<Value> && ValueStructure<Tree<Value>> && ValueStructure<std::vector<Tree<Value>>>);
static_assert(ValueStructure<Pair<Value>> && ValueStructure<std::tuple<Pair<Value>, std::array<Value, 3>>>);
static_assert(!ValueStructure<Array> && !ValueStructure<int> && !ValueStructure<std::span<const Value>>);
static_assert(std::same_as<ArraysOf<std::pair<Pair<Value>, Value>>, std::pair<Pair<Array>, Array>>);

TEST(Functions, LeavesAreNumberedDepthFirst) {
  const Pair<Array> p{{{"b", numbers({1})}, {"a", Tree<Array>{{"x", numbers({2})}}}}, {numbers({3}), numbers({4})}};
  const std::vector<Array> leaves = leaves_of(std::tuple(p, numbers({5})));
  ASSERT_EQ(leaves.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(leaves[i].at(0), static_cast<double>(i + 1));
  const auto [back, last] = with_leaves(std::tuple(p, numbers({5})), leaves);
  EXPECT_EQ(back.tree["a.x"].at(0), 2);
  EXPECT_EQ(back.list[1].at(0), 4);
  EXPECT_EQ(last.at(0), 5);
  EXPECT_THROW(with_leaves(p, leaves), UserError);
}

TEST(Functions, ATrainingStepIsTheOneOfFlatLists) {
  const nn::Sequential model{nn::Linear(2, 8), nn::Activation("tanh"), nn::Linear(8, 1)};
  const losses::MSE loss;
  const optim::Adam adam(1e-2);
  Tree<Array> params = model.init(0), state = adam.init(params);
  const Array x = nn::uniform(1, {16, 2}, DType::F32, -1, 1), y = nn::uniform(2, {16, 1}, DType::F32, -1, 1);
  const auto step = jit([&](const Tree<Value>& p, const Tree<Value>& s, Value in, Value target) {
    const auto [value, grads] =
        value_and_grad([&](const Tree<Value>& q) { return loss(model.apply(q, in), target); })(p);
    const auto [new_p, new_s] = adam.update(grads, s, p);
    return std::tuple(new_p, new_s, value);
  });
  const std::size_t n = params.num_leaves(), m = state.num_leaves();
  const Jit flat = jit([&](std::span<const Value> in) {
    std::vector<int> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<int>(i);
    const std::vector<Value> out =
        value_and_grad(Function([&](std::span<const Value> v) {
                         return std::vector{loss(model.apply(params.unflatten(v), in[n + m]), in[n + m + 1])};
                       }),
                       all)(in.first(n));
    const auto [p, s] = adam.update(params.unflatten(std::span(out).subspan(1)), state.unflatten(in.subspan(n, m)),
                                    params.unflatten(in.first(n)));
    std::vector<Value> result = p.flatten();
    for (const Value& v : s.flatten()) result.push_back(v);
    result.push_back(out[0]);
    return result;
  });
  std::vector<Array> carry = params.flatten();
  for (const Array& a : state.flatten()) carry.push_back(a);
  carry.push_back(x);
  carry.push_back(y);
  for (int i = 0; i < 3; ++i) {
    Array value;
    std::tie(params, state, value) = step(params, state, x, y);
    const std::vector<Array> out = flat(carry);
    std::copy_n(out.begin(), n + m, carry.begin());
    EXPECT_EQ(value.at(0), out.back().at(0));
  }
  const std::vector<Array> leaves = params.flatten();
  for (std::size_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < leaves[i].size(); ++k) EXPECT_EQ(leaves[i].at(k), carry[i].at(k));
  EXPECT_EQ(params.names()[0], "0.weight");
}

// f(a, (b, c)) = sum(a^2 b) + c, with b b as a second result.
std::pair<Value, Tree<Value>> example(const Tree<Value>& a, const std::pair<Value, Value>& bc) {
  const Value v = a["w"];
  return {sum(v * v * bc.first) + bc.second, {{"square", bc.first * bc.first}}};
}

TEST(Functions, GradientsHaveTheStructureOfTheirArgument) {
  const Tree<Array> a{{"w", numbers({1, 2, 3})}};
  const std::pair<Array, Array> bc{numbers({4, 5, 6}), Array::scalar(7.0)};
  const auto [given, by_a] = jit(value_and_grad(example))(a, bc);
  EXPECT_EQ(given.first.at(0), 1 * 4 + 4 * 5 + 9 * 6 + 7);
  EXPECT_EQ(given.second["square"].at(2), 36);
  EXPECT_EQ(by_a["w"].at(1), 2 * 2 * 5);
  const std::pair<Array, Array> by_bc = jit(grad<1>(example))(a, bc);
  EXPECT_EQ(by_bc.first.at(2), 9);
  EXPECT_EQ(by_bc.second.at(0), 1);
  // Of a gradient: d/da sum(d f/da) = 2 b.
  const Tree<Array> second =
      jit(grad([](const Tree<Value>& p, const std::pair<Value, Value>& q) { return sum(grad(example)(p, q)["w"]); }))(
          a, bc);
  EXPECT_EQ(second["w"].at(0), 8);
}

TEST(Functions, ForwardReverseAndCurvature) {
  const auto f = [](const Tree<Value>& p) {
    return std::pair(sum(p["x"] * p["x"] * p["x"]), cast(p["n"], DType::F64));
  };
  const auto all = jit([&](const Tree<Value>& at, const Tree<Value>& along) {
    const auto [value, tangent] = jvp(f, at, along);
    const auto [again, pullback] = vjp(f, at);
    return std::tuple(value, tangent, pullback({ones_like(again.first), zeros_like(again.second)}));
  });
  const Tree<Array> at{{"x", numbers({1, 2})}, {"n", Array::scalar(std::int32_t{3})}},
      along{{"x", numbers({1, -1})}, {"n", Array::scalar(std::int32_t{9})}};
  const auto [value, tangent, back] = all(at, along);
  EXPECT_EQ(value.first.at(0), 9);
  EXPECT_EQ(tangent.first.at(0), 3 - 12);
  EXPECT_EQ(tangent.second.at(0), 0);  // an integer's tangent does not count
  EXPECT_EQ(back["x"].at(1), 12);
  const auto curved = jit([&](Value x, Value v) { return hvp([](Value u) { return sum(u * u * u); }, x, v); });
  EXPECT_EQ(curved(numbers({1, 2}), numbers({1, -1})).at(1), -12);
  // Of several arguments: tuples.
  const auto product = [](Value u, Value v) { return sum(u * v); };
  const auto both = jit([&](Value u, Value v) {
    return std::pair(jvp(product, {u, v}, {v, Value()}).second, hvp(product, {u, v}, {v, u}));
  })(numbers({1, 2}), numbers({3, 4}));
  EXPECT_EQ(both.first.at(0), 25);
  EXPECT_EQ(std::get<0>(both.second).at(1), 2);
  EXPECT_EQ(std::get<1>(both.second).at(1), 4);
}

TEST(Functions, JacobiansKnowTheirStructure) {
  const auto cubes = [](const Tree<Value>& p, Value x) { return std::pair(sum(p["w"]), p["w"] * x * x * x); };
  const Tree<Array> p{{"w", numbers({2, 3})}};
  const auto [stored, dense, second] = jit([&](const Tree<Value>& q, Value x) {
    const Jacobian j = jacobian(cubes, {.argnum = 1, .output = 1})(q, x);
    const Jacobian h = sparse_hessian([&](Value at) { return sum(cubes(q, at).second); })(x);
    return std::tuple(j.values(), j.dense(), h.diagonal());
  })(p, numbers({1, 2}));
  EXPECT_EQ(stored.size(), 2);
  EXPECT_EQ(dense.at(3), 3 * 3 * 4);
  EXPECT_EQ(dense.at(1), 0);
  EXPECT_EQ(second.at(1), 3 * 6 * 2);
}

TEST(Functions, Batches) {
  const auto f = [](const Tree<Value>& w, Value x) { return std::pair(sum(w["w"] * x), x); };
  const Tree<Array> w{{"w", numbers({1, 10})}};
  const Array x = Array::from(std::vector<double>{1, 2, 3, 4, 5, 6}, {3, 2});
  const auto [dots, same] = jit(vmap(f, {-1, 0}))(w, x);
  EXPECT_EQ(dots.shape(), Shape({3}));
  EXPECT_EQ(dots.at(2), 65);
  EXPECT_EQ(same.at(5), 6);
  const Tree<Array> per_sample =
      jit(vmap(grad([&](const Tree<Value>& p, Value v) { return f(p, v).first; }), {-1, 0}))(w, x);
  EXPECT_EQ(per_sample["w"].shape(), Shape({3, 2}));
  EXPECT_EQ(per_sample["w"].at(3), 4);
  EXPECT_THROW(jit(vmap(f, {0}))(w, x), UserError);
}

TEST(Functions, LoopsAndBranches) {
  const Array xs = Array::from(std::vector<double>{1, 2, 3}, {3});
  // Carries are structures; what the body captures is of the enclosing trace.
  const auto run = jit([](const Tree<Value>& start, Value x, Value scale) {
    const auto [last, ys] = scan(
        [&](const Tree<Value>& carry, Value at) {
          const Value next = carry["sum"] + scale * at;
          return std::pair(Tree<Value>{{"sum", next}}, std::pair(next, at));
        },
        start, x);
    const auto counted = scan([&](Value carry, std::tuple<>) { return std::pair(carry * scale, std::tuple<>()); },
                              scale, std::tuple<>(), {.length = 3});
    const Value doubled =
        while_loop([](Value v) { return less(v, like(v, 100)); }, [](Value v) { return 2.0 * v; }, last["sum"], 64);
    const std::pair<Value, Value> branch = cond(
        less(doubled, like(doubled, 150)), [&] { return std::pair(doubled, scale); },
        [&] { return std::pair(scale, doubled); });
    return std::tuple(last, ys, counted.first, doubled, branch);
  });
  const auto [last, ys, power, doubled, branch] = run({{"sum", Array::scalar(1.0)}}, xs, Array::scalar(2.0));
  EXPECT_EQ(last["sum"].at(0), 13);
  EXPECT_EQ(ys.first.at(1), 7);
  EXPECT_EQ(ys.second.at(2), 3);
  EXPECT_EQ(power.at(0), 16);
  EXPECT_EQ(doubled.at(0), 104);
  EXPECT_EQ(branch.first.at(0), 104);
  // Through all of it, recomputed: d/dscale of the last sum is 6, times 8 by the doubling.
  const auto slope = jit(grad([](Value scale, Value x) {
    const auto sums = checkpoint([&](Value s, const std::vector<Value>& v) {
      return scan([&](Value c, Value at) { return std::pair(c + s * at, c); }, zeros_like(s), v[0]).first;
    });
    return while_loop([](Value v) { return less(v, like(v, 80)); }, [](Value v) { return 2.0 * v; }, sums(scale, {x}),
                      8);
  }))(Array::scalar(2.0), xs);
  EXPECT_EQ(slope.at(0), 6 * 8);
}

// Lists of values, and axes to sum over, as they are written in a cell.
TEST(Functions, ListsOfValues) {
  const Array x = Array::from(std::vector<double>{1, 2}, {1, 2}),
              weight = Array::from(std::vector<double>{3, 4}, {1, 2});
  const auto [side, above, cut, put, total, affine] = jit([](Value a, Value w) {
    const Value at = constant(1, DType::I32), first = constant(0, DType::I32);
    return std::tuple(concat({a, 2.0 * a}, 1), stack({a, a, a}, 0), dynamic_slice(a, {first, at}, {1, 1}),
                      dynamic_update(a, like(a, 7) + zeros_like(narrow(a, 1, 0, 1)), {first, at}), sum(a, {1}),
                      nn::linear(a, w, sum(w, {1})));
  })(x, weight);
  EXPECT_EQ(side.str(), "f64[1,4] {1, 2, 2, 4}");
  EXPECT_EQ(above.str(), "f64[3,1,2] {1, 2, 1, 2, 1, 2}");
  EXPECT_EQ(cut.str(), "f64[1,1] {2}");
  EXPECT_EQ(put.str(), "f64[1,2] {1, 7}");
  EXPECT_EQ(total.str(), "f64[1] {3}");
  EXPECT_EQ(affine.str(), "f64[1,1] {18}");
}

TEST(Functions, OneProgramForEachStructureAndTypes) {
  int traced = 0;
  const auto total = jit([&](const std::vector<Value>& all, const Tree<Value>& t) {
    ++traced;
    Value result = t.flatten()[0];
    for (const Value& v : all) result = result + v;
    // As many results as arguments.
    return std::vector<Value>(all.size(), result);
  });
  const Tree<Array> named{{"a", numbers({1})}}, other{{"b", numbers({1})}};
  EXPECT_EQ(total({numbers({1}), numbers({2})}, named).size(), 2U);
  EXPECT_EQ(total({numbers({5}), numbers({2})}, named)[0].at(0), 8);
  EXPECT_EQ(traced, 1);
  EXPECT_EQ(total({numbers({1})}, named).size(), 1U);
  EXPECT_EQ(traced, 2);
  total({numbers({1})}, other);
  EXPECT_EQ(traced, 3);
  total({numbers({1, 2})}, Tree<Array>{{"a", numbers({1, 2})}});
  EXPECT_EQ(traced, 4);
  total({numbers({1})}, named);
  EXPECT_EQ(traced, 4);
  EXPECT_EQ(total.executable({numbers({1})}, named).input_types().size(), 2U);
  EXPECT_THROW(total({Array()}, named), UserError);
  EXPECT_EQ(traced, 4);
}

TEST(Functions, BatchAxesCountLeaves) {
  int traced = 0;
  const auto means = jit(
      [&](const Tree<Value>& w, Value x) {
        ++traced;
        return mean(x * broadcast_to(w["w"], x.shape()), {0});
      },
      {.batch_axes = {-1, 0}});
  const Tree<Array> w{{"w", numbers({2, 3})}};
  EXPECT_EQ(means(w, Array::full(DType::F64, {8, 2}, 1)).at(1), 3);
  EXPECT_EQ(means(w, Array::full(DType::F64, {5, 2}, 2)).at(0), 4);
  EXPECT_EQ(traced, 1);
}

TEST(Functions, ThreadsShareThePrograms) {
  std::atomic<int> traced = 0;
  const auto twice = jit([&](Value x) {
    ++traced;
    return x + x;
  });
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int n = 1; n <= 8; ++n) {
        const Array got = twice(Array::full(DType::F64, {n}, n));
        if (got.size() != n || got.at(n - 1) != 2 * n) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(traced, 8);
}

TEST(Functions, UsersStructs) {
  const auto scaled = jit([](Pair<Value> p, Value by) {
    for (Value& v : p.list) v = v * by;
    p.tree["a"] = p.tree["a"] - by;
    return p;
  });
  const Pair<Array> got = scaled({{{"a", numbers({1})}}, {numbers({2}), numbers({3})}}, numbers({10}));
  EXPECT_EQ(got.tree["a"].at(0), -9);
  EXPECT_EQ(got.list[1].at(0), 30);
}

}  // namespace
}  // namespace hotloop
