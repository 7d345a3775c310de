// Convolution over time beside its sum written out: dilation, groups, a state to go on from, lengths, time backward.
#include "hotloop/ops.h"
#include "nn_testing.h"

namespace hotloop::testing {
namespace {

using namespace nn;

constexpr std::int64_t B = 3, T = 9, I = 4, O = 6;

Array random(std::uint64_t seed, const Shape& shape) { return uniform(seed, shape, DType::F64, -1, 1); }

struct Sizes {
  std::int64_t kernel = 3, dilation = 1, groups = 1;
};
const Sizes all_sizes[] = {{1, 1, 1}, {3, 1, 1}, {2, 3, 2}, {4, 2, 1}};

// `step` -1 for time backward; x beyond a row's `length` counts as zero.
double expected(const Tree<Array>& params, const Array& x, const Sizes& s, std::int64_t b, std::int64_t t,
                std::int64_t o, int direction = 1, std::int64_t length = T) {
  const std::int64_t own = I / s.groups, group = o / (O / s.groups);
  double y = params["bias"].at(o);
  for (std::int64_t k = 0; k < s.kernel; ++k) {
    const std::int64_t from = t - direction * (s.kernel - 1 - k) * s.dilation;
    if (from < 0 || from >= length) continue;
    for (std::int64_t i = 0; i < own; ++i)
      y += params["weight"].at((o * own + i) * s.kernel + k) * x.at((b * T + from) * I + group * own + i);
  }
  return y;
}

TEST(Conv1d, IsTheSumOverItsPlaces) {
  for (const Sizes& s : all_sizes) {
    const Conv1d layer(I, O, s.kernel, {.dilation = s.dilation, .groups = s.groups});
    const Tree<Array> params = layer.init(1, DType::F64);
    const Array x = random(2, {B, T, I}), y = apply_on(layer, params, x)[0];
    ASSERT_EQ(y.shape(), (Shape{B, T, O}));
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = 0; t < T; ++t)
        for (std::int64_t o = 0; o < O; ++o)
          EXPECT_NEAR(y.at((b * T + t) * O + o), expected(params, x, s, b, t, o), 1e-14);
  }
}

TEST(Conv1d, GoesOnFromItsState) {
  for (const Sizes& s : {Sizes{3, 1, 1}, Sizes{2, 3, 2}}) {
    const Conv1d layer(I, O, s.kernel, {.dilation = s.dilation, .groups = s.groups});
    const Tree<Array> params = layer.init(1, DType::F64);
    const Array x = random(2, {B, T, I}), whole = apply_on(layer, params, x)[0];
    Tree<Array> state = {{"past", Array::zeros(DType::F64, {B, (s.kernel - 1) * s.dilation, I})}};
    for (std::int64_t t = 0; t < T; ++t) {
      Array step(DType::F64, {B, 1, I});
      for (std::int64_t b = 0; b < B; ++b)
        for (std::int64_t i = 0; i < I; ++i) step.set(b * I + i, x.at((b * T + t) * I + i));
      const std::vector<Array> out = apply_on(layer, params, step, &state);
      for (std::int64_t b = 0; b < B; ++b)
        for (std::int64_t o = 0; o < O; ++o) EXPECT_EQ(out[0].at(b * O + o), whole.at((b * T + t) * O + o));
      state.set("past", out[1]);
    }
  }
}

TEST(Conv1d, TheStateOfAShortRowIsThatOfItsLastStep) {
  const Conv1d layer(I, O, 2, {.dilation = 2});
  const Array x = random(2, {B, T, I}), lengths = Array::from<std::int32_t>({9, 1, 4}, {B});
  const std::vector<Array> out = run_traced(
      [&](std::span<const Value> in) {
        Context context;
        context.lengths = in[3];
        context.state = layer.initial_state(B, DType::F64);
        const Value y = layer.apply({{"weight", in[0]}, {"bias", in[1]}}, in[2], context);
        return std::vector<Value>{y, (*context.state)["past"]};
      },
      {random(1, {O, I, 2}), random(3, {O}), x, lengths});
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t j = 0; j < 2; ++j) {
      const std::int64_t t = static_cast<std::int64_t>(lengths.at(b)) - 2 + j;
      for (std::int64_t i = 0; i < I; ++i)
        EXPECT_EQ(out[1].at((b * 2 + j) * I + i), t < 0 ? 0 : x.at((b * T + t) * I + i)) << b << " " << t;
    }
}

TEST(Conv1d, BackwardItSeesLaterStepsOfItsRowAlone) {
  const Sizes s{3, 2, 1};
  const Conv1d layer(I, O, s.kernel, {.dilation = s.dilation});
  const Tree<Array> params = layer.init(1, DType::F64);
  const Array x = random(2, {B, T, I}), lengths = Array::from<std::int32_t>({9, 3, 6}, {B});
  const Array y = run_traced(
      [&](std::span<const Value> in) {
        Context context;
        context.lengths = in[3];
        context.reverse = true;
        return std::vector<Value>{layer.apply({{"weight", in[0]}, {"bias", in[1]}}, in[2], context)};
      },
      {params["weight"], params["bias"], x, lengths})[0];
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < static_cast<std::int64_t>(lengths.at(b)); ++t)
      for (std::int64_t o = 0; o < O; ++o)
        EXPECT_NEAR(y.at((b * T + t) * O + o),
                    expected(params, x, s, b, t, o, -1, static_cast<std::int64_t>(lengths.at(b))), 1e-14);
  EXPECT_EQ(message_of([&] {
              run_traced(
                  [&](std::span<const Value> in) {
                    Context context;
                    context.reverse = true;
                    context.state = layer.initial_state(B, DType::F64);
                    return std::vector<Value>{layer.apply({{"weight", in[0]}, {"bias", in[1]}}, in[2], context)};
                  },
                  {params["weight"], params["bias"], x});
            }),
            "[conv1d] a convolution that runs from the last step to the first has no state to go on from. "
            "Received: a state. Try: the whole sequence.");
}

TEST(Conv1d, SizesThatCannotBe) {
  EXPECT_EQ(message_of([] { Conv1d(4, 6, 0); }), "[conv1d] kernel must be positive. Received: 0.");
  EXPECT_EQ(message_of([] { Conv1d(4, 6, 2, {.groups = 4}); }),
            "[conv1d] groups must divide inputs and filters. Received: 4 groups, 4 inputs, 6 filters.");
}

}  // namespace
}  // namespace hotloop::testing
