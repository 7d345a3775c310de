// Loops of training steps put together at random: weights that learn from carried rows, by one step or by an inner loop, rows that look at the whole batch, are
// moved along it, handed on as they were, and emitted. What is compiled gives the oracle's numbers, and the same bits with one worker and with two.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "array_writer.h"
#include "arrays.h"
#include "hotloop/jit.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "op_checks.h"
#include "seeds.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

class RandomOuterLoop : public ArrayWriter {
 public:
  RandomOuterLoop(std::uint64_t seed, DType dtype) : ArrayWriter(seed, dtype, {}, 0) {
    rows_ = one_of(Extents{16, 48, 100, 130, 257});
    width_ = 16 * (1 + pick(3));
    num_batches_ = 2 + pick(3);
    step_seed_ = rng_();
  }

  // Weights, and batches of rows.
  std::vector<Array> inputs() {
    std::vector<Array> all;
    for (int i = 0; i <= num_batches_; ++i) {
      const bool is_weights = i == 0;
      all.push_back(normal_array({is_weights ? width_ : rows_, width_}, dtype_, static_cast<unsigned>(rng_())));
      for (std::int64_t k = 0; is_weights && k < all.back().size(); ++k) all.back().set(k, 0.15 * all.back().at(k));
    }
    return all;
  }

  std::vector<Value> operator()(Values in) {
    rng_.seed(step_seed_);
    ScanOptions options;
    options.length = 2 + pick(4);
    options.reverse = chance(2);
    auto [last, emitted] = scan([&](Values carry, Values) { return step(carry); }, in, {}, options);
    last.insert(last.end(), emitted.begin(), emitted.end());
    return last;
  }

 private:
  using Step = std::pair<std::vector<Value>, std::vector<Value>>;
  Step step(Values carry) {
    const Value weights = carry[0];
    const std::vector<Value> old(carry.begin() + 1, carry.end());
    std::vector<Value> known = old, next{learned(weights, one_of(known), chance(3))};
    if (chance(2)) known.push_back(through_layers(one_of(known), weights, 4 + pick(8)));
    for (std::size_t i = 0; i < old.size(); ++i) {
      next.push_back(rows_of(known, weights));
      if (chance(3)) known.push_back(next.back());
    }
    std::vector<Value> emitted{one_of(known)};
    if (chance(3)) emitted.push_back(sum(one_of(known), {0}));
    return {next, emitted};
  }

  static Value through_layers(Value x, Value weights, int count) {
    for (int i = 0; i < count; ++i) x = tanh(matmul(x, weights));
    return x;
  }
  // Weights after one step of descent on the rows x, or after two.
  Value learned(Value weights, Value x, bool by_a_loop) {
    const int layers = 2 + pick(2);
    const auto descended = [&](Value w) {
      const Function loss = [&](Values in) {
        return std::vector{mean(square(through_layers(x, in[0], layers) - 0.5))};
      };
      return w - 0.1 * grad(loss, {0})({&w, 1})[0];
    };
    if (!by_a_loop) return descended(weights);
    return scan([&](Values c, Values) { return std::pair(std::vector{descended(c[0])}, std::vector<Value>{}); },
                {&weights, 1}, {}, {.length = 2})
        .first[0];
  }

  static Value settled(Value x) { return x / (1.0 + abs(x) * 0.3); }
  Value rows_of(const std::vector<Value>& known, Value weights) {
    const Value x = one_of(known), y = one_of(known);
    const auto as_rows = [&](Value v, std::int64_t axis) { return broadcast(v, x.shape(), {axis}); };
    switch (pick(11)) {
      case 0:
      case 1: return x;  // as it was
      case 2: {
        const std::int64_t by = 1 + pick(rows_ - 1);
        return concat({narrow(x, 0, rows_ - by, by), narrow(x, 0, 0, rows_ - by)}, 0);
      }
      case 3: return reverse(x, {0});
      case 4: return settled(x * 0.9 + y * 0.2);
      case 5: return settled(x - as_rows(mean(x, {0}), 1));
      case 6: return tanh(matmul(x, weights));
      case 7: {
        Array places(DType::I32, {rows_});
        for (std::int64_t i = 0; i < rows_; ++i) places.set(i, pick(rows_));
        return gather(x, constant(places), 0);
      }
      case 8: {
        const Value start[] = {constant(pick(rows_), DType::I32), constant(0, DType::I32)};
        return dynamic_update(x, narrow(y, 0, 0, 1 + pick(rows_)) * 0.5, start);
      }
      case 9: return settled(x - as_rows(reduce_max(x, {1}), 0));
      default: return settled(matmul(x, matmul(transpose(x, {1, 0}), y) * (1.0 / static_cast<double>(rows_))));
    }
  }

  std::int64_t rows_, width_;
  int num_batches_;
  std::uint64_t step_seed_;
};

void check_program(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  const DType dtype = seed % 3 == 0 ? DType::F64 : DType::F32;
  RandomOuterLoop program(seed * 0x9e3779b97f4a7c15u, dtype);
  const std::vector<Array> inputs = program.inputs();
  const auto graph = trace([&](Values in) { return program(in); }, ir::types_of(inputs));
  const std::vector<Array> wanted = ir::evaluate(*graph, inputs);
  std::vector<Array> alone;
  for (const int threads : {1, 2}) {
    CompileOptions options;
    options.threads = threads;
    const std::vector<Array> got = compile(graph, options)(inputs);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(ir::close(got[i], wanted[i], dtype == DType::F32 ? 2e-3 : 1e-8)) << "result " << i;
      if (threads > 1) EXPECT_TRUE(same_bits(got[i], alone[i])) << "result " << i << " with " << threads << " threads";
    }
    if (threads == 1) alone = got;
  }
}

TEST(RandomOuterLoops, GiveTheOraclesNumbers) { for_seeds(check_program, 10); }

}  // namespace
}  // namespace hotloop::testing
