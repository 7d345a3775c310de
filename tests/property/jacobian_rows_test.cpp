// Rows that share the input that derivatives are taken of: one row's passes give the Jacobians of all.
#include "jacobian_cases.h"

namespace hotloop::testing {
namespace {

std::vector<JacobianCase> cases() {
  return {
      {"residuals",
       one_result([](Values v) { return reshape(matmul(tanh(matmul(v[1], v[0])), v[2]), {9}) - v[3]; }),
       {f64({3, 4}), f64({9, 3}), f64({4, 1}), f64({9})},
       {},
       1},
      {"residuals_by_vmap",
       vmap([](Values v) { return std::vector{square(sum(sin(v[0]) * v[1]) - v[2])}; }, {-1, 0, 0}),
       {f64({5}), f64({8, 5}), f64({8})},
       {},
       1},
      {"two_outputs_a_row",  // more columns than rows of a block
       one_result([](Values v) {
         const Value h = tanh(matmul(v[1], reshape(v[0], {3, 2})));
         return matmul(h, constant(Array::from(std::vector{1.0, 2.0, 3.0, 4.0}, Shape{2, 2})));
       }),
       {f64({6}), f64({7, 3})},
       {},
       2},
      {"transposed_rows",
       one_result([](Values v) {
         return reduce_sum(transpose(tanh(matmul(v[1], v[0])), {1, 0}), {0});
       }),
       {f64({4, 2}), f64({9, 4})},
       {},
       1},
      {"losses_of_a_recurrent_net",
       one_result([](Values v) {
         const Value batch = v[1], init[] = {broadcast_to(constant(0, DType::F64, {1, 1}), {6, 3})};
         const Value xs[] = {transpose(batch, {1, 0, 2})};
         const Value last =
             scan(
                 [&](Values h, Values x) {
                   const Value parts[] = {x[0], h[0]};
                   return std::pair{std::vector{tanh(matmul(concat(parts, 1), v[0]))}, std::vector<Value>{}};
                 },
                 init, xs)
                 .first[0];
         return reduce_sum(square(last - v[2]), {1});
       }),
       {f64({5, 3}), f64({6, 4, 2}), f64({6, 3})},
       {},
       1},
      {"every_step_of_every_row",
       one_result([](Values v) {
         return reduce_sum(square(recurrent(std::vector{v[1], v[0]})[0]), {2});
       }),
       {f64({5, 3}), f64({6, 4, 2})},
       {},
       4},
      {"embedding",
       one_result([](Values v) {
         const Value ids = cast(clip(v[1] * 3.0, 0, 2), DType::I32);
         return reduce_sum(sin(gather(v[0], ids, 0) * v[2]), {1});
       }),
       {f64({3, 4}), f64({9}), f64({9, 4})},
       {},
       1},
      {"checkpointed_rows",
       checkpoint(one_result([](Values v) { return reduce_sum(tanh(matmul(v[1], v[0])), {1}); })),
       {f64({3, 4}), f64({9, 3})},
       {},
       1},
      {"normalised_over_the_rows",  // after the parameters: each row needs all of them
       one_result([](Values v) {
         const Value h = matmul(v[1], v[0]);
         return reduce_sum(square(h - broadcast(mean(h, {0}), h.shape(), {1})), {1});
       }),
       {f64({3, 4}), f64({9, 3})},
       {},
       9},
      {"normalised_before",
       one_result([](Values v) {
         const Value x = v[1] - broadcast(mean(v[1], {0}), v[1].shape(), {1});
         return reduce_sum(square(matmul(x, v[0])), {1});
       }),
       {f64({3, 4}), f64({9, 3})},
       {},
       1},
      {"sums_over_earlier_rows",
       one_result([](Values v) {
         const Value init[] = {constant(0, DType::F64)}, xs[] = {reduce_sum(sin(matmul(v[1], v[0])), {1})};
         return scan(
                    [](Values c, Values x) {
                      return std::pair{std::vector{c[0] + x[0]}, std::vector{c[0] + x[0]}};
                    },
                    init, xs)
             .second[0];
       }),
       {f64({3, 4}), f64({9, 3})},
       {},
       9},
      {"written_into_some_rows",
       one_result([](Values v) {
         const Value h = reduce_sum(tanh(matmul(v[1], v[0])), {1}), start[] = {constant(2, DType::I32)};
         return dynamic_update(h, square(narrow(h, 0, 0, 3)), start);
       }),
       {f64({3, 4}), f64({9, 3})},
       {},
       9},
      {"numbered_rows",
       one_result(
           [](Values v) { return reduce_sum(matmul(v[1], v[0]), {1}) * cast(iota(DType::I32, {9}, 0), DType::F64); }),
       {f64({3, 4}), f64({9, 3})},
       {},
       1},
      // Inside blocks: an axis of the output goes with one of the input, and rows along another share what is left of it.
      {"residuals_of_an_ensemble",
       one_result([](Values v) {
         return tanh(matmul(v[0], transpose(v[1], {1, 0}))) - v[2];
       }),
       {f64({3, 4}), f64({9, 4}), f64({9})},
       {{0, 0}},
       1},
      {"rows_before_the_members",
       one_result([](Values v) {
         return tanh(matmul(v[1], transpose(v[0], {1, 0})));
       }),
       {f64({3, 4}), f64({9, 4})},
       {{1, 0}},
       1},
      {"members_with_data_of_their_own",
       vmap([](Values v) { return std::vector{square(matmul(sin(matmul(v[1], v[0])), v[2]))}; }, {0, 0, -1}),
       {f64({2, 4, 3}), f64({2, 7, 4}), f64({3})},
       {{0, 0}},
       1},
      {"recurrent_ensemble",
       vmap(
           [](Values v) {
             return std::vector{reduce_sum(square(recurrent(std::vector{v[1], v[0]})[0]), {1, 2})};
           },
           {0, -1}),
       {f64({2, 5, 3}), f64({6, 4, 2})},
       {{0, 0}},
       1},
      {"two_outputs_a_row_and_member",
       vmap(
           [](Values v) {
             return std::vector{matmul(tanh(matmul(v[1], reshape(v[0], {3, 2}))), v[2])};
           },
           {0, -1, -1}),
       {f64({4, 6}), f64({7, 3}), f64({2, 2})},
       {{0, 0}},
       2},
      {"ensemble_normalised_over_the_rows",
       one_result([](Values v) {
         const Value h = matmul(v[0], transpose(v[1], {1, 0}));
         return square(h - broadcast(mean(h, {1}), h.shape(), {0}));
       }),
       {f64({3, 4}), f64({9, 4})},
       {{0, 0}},
       4},
  };
}

INSTANTIATE_TEST_SUITE_P(Rows, JacobianStructures, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop::testing
