// Products with second derivatives and forward mode keep the shape of the program: one pass over tiles of rows, from the first product to the
// last, and no more products than the derivative needs.
#include <gtest/gtest.h>

#include "hotloop/hotloop.h"
#include "perceptron_jacobians.h"

namespace hotloop {
namespace {

struct Count {
  int grids = 0, dots = 0, whole_dots = 0;  // dots of all rows at once
  std::int64_t step_multiply_adds = 0;      // of the loops' bodies, a row

  void walk(const kernel::Block& block, bool in_loop = false) {
    for (const kernel::Stmt& stmt : block) {
      if (const auto* dot = std::get_if<kernel::Dot>(&stmt.node)) {
        ++dots;
        whole_dots += dot->m.is_static();
        for (const kernel::DotSegment& s : dot->segments) {
          std::int64_t k = 1;
          for (const kernel::KDim& d : s.k) k *= d.extent.bound;
          if (in_loop) step_multiply_adds += dot->n.bound * k;
        }
      }
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) walk(loop->body, true);
      if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) walk(single->body, in_loop);
      if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) {
        ++grids;
        walk(grid->body, in_loop);
      }
    }
  }
};

Count counted(const Function& fn, const std::vector<ValueType>& types) {
  Count count;
  count.walk(program_of(*trace(fn, types)).body);
  return count;
}

// x [W dW] is one product; [x dx] W would be one of twice the rows.
TEST(DerivativeKernel, OfPerceptronsIsOnePassOverTheRows) {
  const Net net{"", {16, 64, 64, 8}, tanh, 2000};
  std::vector<ValueType> types = types_of(net);
  types.push_back(types[0]);
  const auto with_x = [net](Values v, Values x) {
    std::vector<Value> all(v.begin(), v.end() - 1);
    all[0] = x[0];
    return hotloop::apply(net, all);
  };
  const Function forward = [&](Values v) {
    const auto [values, tangents] = jvp([&](Values x) { return with_x(v, x); }, v.first(1), v.last(1));
    return std::vector{values[0], tangents[0]};
  };
  const Function product = [&](Values v) {
    return hvp([&](Values x) { return std::vector{sum(square(with_x(v, x)[0]))}; }, v.first(1), v.last(1));
  };
  for (const auto& [fn, num_dots] : {std::pair(forward, 6), std::pair(product, 11)}) {
    const Count count = counted(fn, types);
    EXPECT_EQ(count.grids, 1);
    EXPECT_EQ(count.dots, num_dots);
    EXPECT_EQ(count.whole_dots, 0);
  }
}

// The gradient of a residual with a third derivative. The products with the derivatives' seeds are of features alone, and were taken as a sign that features
// run through the program and rows do not: rows were laid side by side, and six passes went through memory.
TEST(DerivativeKernel, OfThirdDerivativesIsOnePassOverThePoints) {
  constexpr std::int64_t N = 256, H = 24;
  const auto field = [](Value t, Value x, Values w) {
    const Value hidden = tanh(matmul(stack(std::vector{t, x}, 0), w[0]) + w[1]);
    return reshape(matmul(tanh(matmul(hidden, w[2]) + w[3]), w[4]) + w[5], {});
  };
  const Function loss = [&](Values v) {  // w1, b1, w2, b2, w3, b3, points
    const Values w = v.first(6);
    const Function u_x = grad([&](Values in) { return std::vector{field(in[0], in[1], w)}; }, {1});
    const Function u_xxx = grad(grad(u_x, {1}), {1});
    const Function u_t = grad([&](Values in) { return std::vector{field(in[0], in[1], w)}; }, {0});
    const Function residual = [&](Values point) {
      const Value t = take(point[0], 0, 0), x = take(point[0], 0, 1);
      const std::vector<Value> in = {t, x};
      return std::vector{u_t(in)[0] + field(t, x, w) * u_x(in)[0] + u_xxx(in)[0]};
    };
    return std::vector{mean(square(vmap(residual, {0})(v.last(1))[0]))};
  };
  const DType f32 = DType::F32;
  const std::vector<ValueType> types = {{f32, {2, H}}, {f32, {H}}, {f32, {H, H}}, {f32, {H}},
                                        {f32, {H, 1}}, {f32, {1}}, {f32, {N, 2}}};
  const Count count = counted(grad(loss, {0, 1, 2, 3, 4, 5}), types);
  EXPECT_EQ(count.grids, 1);
}

// By the inputs x: forward, tangent and tangent of the backward pass with both weights, the backward pass with the recurrent ones.
TEST(DerivativeKernel, HessianVectorProductOfAnLstmIsTheFewestProducts) {
  constexpr std::int64_t T = 20, B = 48, I = 12, H = 48;
  const Function loss = [](Values v) {  // x (B, T, I), weight_ih, weight_hh, bias_ih, bias_hh
    const nn::LSTM layer(I, H);
    const Tree<Value> params = Tree<Value>::from_names(
        {{"weight_ih_l0", v[1]}, {"weight_hh_l0", v[2]}, {"bias_ih_l0", v[3]}, {"bias_hh_l0", v[4]}});
    nn::Context context;
    return std::vector{sum(square(take(layer.apply(params, v[0], context), 1, -1)))};
  };
  const ValueType x{DType::F32, {B, T, I}};
  const std::vector<ValueType> types{
      x, {DType::F32, {4 * H, I}}, {DType::F32, {4 * H, H}}, {DType::F32, {4 * H}}, {DType::F32, {4 * H}}, x};
  const Function product = [&](Values v) {
    const Function of_x = [&](Values in) {
      std::vector<Value> all(v.begin(), v.end() - 1);
      all[0] = in[0];
      return loss(all);
    };
    return hvp(of_x, v.first(1), v.last(1));
  };
  const Count count = counted(product, types);
  EXPECT_EQ(count.grids, 1);
  EXPECT_EQ(count.dots, 4);
  EXPECT_EQ(count.step_multiply_adds, 4 * H * (3 * (I + H) + H));
}

}  // namespace
}  // namespace hotloop
