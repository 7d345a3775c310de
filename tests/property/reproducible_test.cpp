// Results are the same bits alone and in any batch, for any number of rows of a variable batch, and for any thread count.
#include <cstdlib>
#include <cstring>

#include "arrays.h"
#include "compiled.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "hotloop/transforms.h"
#include "op_checks.h"
#include "targets.h"
#include "user_cells.h"

namespace hotloop {
namespace {

using testing::normal_array;
using testing::same_bits;

Array first_rows(const Array& a, std::int64_t rows) {
  Shape shape = a.shape();
  shape[0] = rows;
  Array part(a.dtype(), shape);
  std::memcpy(part.raw(), a.raw(), part.bytes());
  return part;
}

struct Case {
  std::string cell;
  DType dtype;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.cell << " in " << name_of(c.dtype); }

constexpr std::int64_t time_steps = 9, features = 5, hidden = 20;

nn::Sequential model_of(const std::string& cell) {
  if (cell == "lstm") return nn::Sequential(nn::LSTM(features, hidden), nn::Last(), nn::Linear(hidden, 3));
  if (cell == "gru") return nn::Sequential(nn::GRU(features, hidden), nn::Last(), nn::Linear(hidden, 3));
  if (cell == "mlp")
    return nn::Sequential(nn::Last(), nn::Linear(features, 33), nn::Activation("tanh"), nn::Linear(33, 3));
  if (cell == "sliced_gates")
    return nn::Sequential(nn::Recurrent(testing::SlicedGatesCell(features, hidden)), nn::Last(), nn::Linear(hidden, 3));
  return nn::Sequential(nn::Recurrent(testing::LayerNormLstmCell(features, hidden)), nn::Last(), nn::Linear(hidden, 3));
}

// A cell's training by Adam.
struct Training {
  explicit Training(const Case& c)
      : dtype(c.dtype), model(model_of(c.cell)), params(model.init(3, dtype)), state(optimizer.init(params)) {}

  Array x(std::int64_t rows) const { return normal_array({rows, time_steps, features}, dtype, 11); }
  Array y(std::int64_t rows) const { return normal_array({rows, 3}, dtype, 12); }
  train::Step step(const Array& x, const Array& y) const {
    return train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type());
  }

  DType dtype;
  nn::Sequential model;
  Tree<Array> params;
  optim::Adam optimizer{1e-3};
  Tree<Array> state;
};

class Reproducible : public ::testing::TestWithParam<Case> {};

TEST_P(Reproducible, ASampleAloneAndInAnyBatch) {
  const auto& [cell, dtype] = GetParam();
  const auto model = model_of(cell);
  const Tree<Array> params = model.init(3, dtype);
  for (const std::int64_t steps : {std::int64_t{1}, time_steps}) {
    const Array all = normal_array({1000, steps, features}, dtype, 11);
    const std::vector<Array> flat = params.flatten();
    const auto predict = [&](std::int64_t rows) {
      std::vector<Array> arguments = flat;
      arguments.push_back(first_rows(all, rows));
      const train::Step step = train::predict_step(model, params, arguments.back().type());
      return compile(step.graph())(arguments)[0];
    };
    const Array thousand = predict(1000);
    for (const std::int64_t rows : {1, 7, 16})
      EXPECT_TRUE(same_bits(predict(rows), first_rows(thousand, rows))) << rows << " rows";
    // Fewer rows than the executable was traced for, down to the last partial tile.
    std::vector<Array> arguments = flat;
    arguments.push_back(all);
    const train::Step step = train::predict_step(model, params, all.type());
    CompileOptions options;
    options.batch_axes = step.batch_axes;
    const Executable executable = compile(step.graph(), options);
    for (const std::int64_t rows : {1000, 999, 50, 17, 13, 7, 1}) {
      arguments.back() = first_rows(all, rows);
      EXPECT_TRUE(same_bits(executable(arguments)[0], first_rows(thousand, rows))) << rows << " of 1000 rows";
    }
  }
}

TEST_P(Reproducible, APartialBatchOfOneExecutable) {
  const Training training(GetParam());
  const Array x = training.x(50), y = training.y(50);
  const train::Step full = training.step(x, y);
  CompileOptions options;
  options.batch_axes = full.batch_axes;
  const Executable executable = compile(full.graph(), options);
  for (const std::int64_t rows : {50, 17, 12, 1}) {
    const Array xr = first_rows(x, rows), yr = first_rows(y, rows);
    const train::Step part = training.step(xr, yr);
    const auto wanted = ir::evaluate(*part.graph(), part.arguments(training.params, training.state, xr, yr));
    const auto got = executable(full.arguments(training.params, training.state, xr, yr));
    ASSERT_EQ(got.size(), wanted.size());
    const double tolerance = training.dtype == DType::F32 ? 2e-5 : 1e-12;
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(ir::close(got[i], wanted[i], tolerance)) << rows << " rows, output " << i;
  }
}

TEST_P(Reproducible, ForAnyThreadCount) {
  const Training training(GetParam());
  const Array x = training.x(130), y = training.y(130);
  const train::Step step = training.step(x, y);
  std::vector<Array> first;
  for (const int threads : {1, 2, 3, 7}) {
    CompileOptions options;
    options.device = "cpu";  // sums over the batch have the device's order
    options.threads = threads;
    options.batch_axes = step.batch_axes;
    const Executable executable = compile(step.graph(), options);
    for (int repetition = 0; repetition < 3; ++repetition) {
      const auto got = executable(step.arguments(training.params, training.state, x, y));
      if (first.empty()) first = got;
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(same_bits(got[i], first[i])) << threads << " threads, output " << i;
    }
  }
}

// Large weights make tiles tall, by the machine's caches; sums over the batch go through them part by part, the last of which may be short or empty.
TEST_P(Reproducible, ForTilesOfAnyHeight) {
  const Training training(GetParam());
  for (const auto& [most, is_variable] :
       {std::pair<std::int64_t, bool>{64, false}, {100, false}, {130, false}, {512, false}, {130, true}}) {
    const Array x = training.x(most), y = training.y(most);
    const train::Step step = training.step(x, y);
    std::vector<Executable> executables;
    for (const bool joined : {false, true}) {
      CompileOptions options;
      options.device = "cpu";
      if (is_variable) options.batch_axes = step.batch_axes;
      if (joined) setenv("HOTLOOP_TILES", "joined", 1);
      executables.push_back(compile(step.graph(), options));
      unsetenv("HOTLOOP_TILES");
      const bool has_parts = executables.back().kernel_text().find("for part.") != std::string::npos;
      if (GetParam().cell != "mlp") EXPECT_EQ(has_parts, joined) << most << " rows";
    }
    for (const std::int64_t rows : {most, most / 2 + 1, std::int64_t{1}}) {
      if (rows < most && !is_variable) continue;
      const auto inputs = step.arguments(training.params, training.state, first_rows(x, rows), first_rows(y, rows));
      const auto apart = executables[0](inputs), joined = executables[1](inputs);
      for (std::size_t i = 0; i < apart.size(); ++i)
        EXPECT_TRUE(same_bits(apart[i], joined[i])) << rows << " of " << most << " rows, output " << i;
    }
  }
}

// Which of the axes that a gradient of a weight is summed over makes the pairs of bfloat16 depends on neither workers nor caches: here tiles of all workers but one have as
// many rows each, and joined ones have not.
TEST(ReproducibleOps, FactorsInBfloat16ForTilesOfAnyHeight) {
  constexpr std::int64_t rows = 160, steps = 64;
  const nn::Sequential model(nn::LSTM(features, hidden), nn::Last(), nn::Linear(hidden, 3));
  const optim::Adam optimizer{1e-3};
  const Tree<Array> params = model.init(3, DType::F32), state = optimizer.init(params);
  const Array x = normal_array({rows, steps, features}, DType::F32, 11), y = normal_array({rows, 3}, DType::F32, 12);
  const train::Step step = train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type());
  std::vector<std::string> targets = kernel::runnable_targets();
  if (kernel::host_runs("amx")) targets.push_back("amx");
  for (const std::string& target : targets)
    for (const bool is_variable : {false, true}) {
      std::vector<Array> first;
      for (const bool joined : {false, true})
        for (const int threads : {1, 2, 4}) {
          CompileOptions options;
          options.device = "cpu";
          options.target = target;
          options.threads = threads;
          options.dot_precision = "bf16";
          if (is_variable) options.batch_axes = step.batch_axes;
          if (joined) setenv("HOTLOOP_TILES", "joined", 1);
          const Executable executable = compile(step.graph(), options);
          unsetenv("HOTLOOP_TILES");
          const auto got = executable(step.arguments(params, state, x, y));
          if (first.empty()) first = got;
          for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_TRUE(same_bits(got[i], first[i])) << target << ", " << threads << " threads, joined " << joined
                                                     << ", variable " << is_variable << ", output " << i;
        }
    }
}

// Sums of a short last axis and every elementwise op: of one sample outside any batch, and of each row of a batch.
TEST(ReproducibleOps, ASampleOutsideOfABatch) {
  std::vector<std::pair<std::string, TracedFunction>> functions = {
      {"sum", [](std::span<const Value> v) { return std::vector<Value>{sum(v[0] * v[0])}; }}};
  for (const ir::OpDef& def : ir::all_ops()) {
    if (def.kind != ir::OpKind::Elementwise || (def.num_operands != 1 && def.num_operands != 2)) continue;
    const auto fn = [&def](std::span<const Value> v) {
      std::vector<Value> operands = {v[0]};
      if (def.num_operands == 2) operands.push_back(v[1]);
      return std::vector<Value>{current_graph().append(def, operands)->result()};
    };
    if (def.name == "cast" || def.name == "bitcast") continue;
    try {
      (void)trace(fn, std::vector<ValueType>(2, {DType::F32, {}}));
    } catch (const UserError&) {
      continue;  // not of floats
    }
    functions.emplace_back(def.name, fn);
  }
  EXPECT_GT(functions.size(), 25u);
  for (const DType dtype : {DType::F32, DType::F64})
    for (const auto& [name, fn] : functions)
      for (const std::int64_t width : {1, 3, 20}) {
        const Array a = normal_array({40, width}, dtype, 5), b = normal_array({40, width}, dtype, 6);
        const Array whole = jit(vmap(fn, {0, 0}))({a, b})[0];
        const Jit alone = jit(fn);
        for (const std::int64_t row : {0, 1, 17, 39}) {
          Array x(dtype, width == 1 ? Shape{} : Shape{width}), y(dtype, x.shape());
          for (std::int64_t i = 0; i < width; ++i) {
            x.set(i, a.at(row * width + i));
            y.set(i, b.at(row * width + i));
          }
          const Array one = alone({x, y})[0];
          const auto* in_batch = static_cast<const char*>(whole.raw()) + static_cast<std::size_t>(row) * one.bytes();
          EXPECT_EQ(std::memcmp(in_batch, one.raw(), one.bytes()), 0)
              << name << " of " << name_of(dtype) << ", width " << width << ", row " << row;
        }
      }
}

// A batch of one row is a batch: its products with a vector are those of a row of many, which those outside of any batch need not be.
TEST(ReproducibleOps, ProductsWithAVectorInAnyBatch) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t width : {8, 16, 24, 64, 130}) {
      const Array weights = normal_array({width, width}, dtype, 7), all = normal_array({40, width}, dtype, 8);
      const auto products = [](std::span<const Value> v) {
        const auto step = [&](std::span<const Value> carry, std::span<const Value>) {
          return std::pair(std::vector<Value>{tanh(matmul(v[0], carry[0]))}, std::vector<Value>{});
        };
        const Value in_loop = scan(step, std::vector<Value>{v[1]}, {}, {.length = 3}).first[0];
        return std::vector<Value>{matmul(v[0], v[1]), matmul(v[1], v[0]), in_loop};
      };
      const auto together = jit(vmap(products, {-1, 0}))({weights, all});
      for (const std::int64_t rows : {1, 2, 17}) {
        const auto few = jit(vmap(products, {-1, 0}))({weights, first_rows(all, rows)});
        for (std::size_t i = 0; i < few.size(); ++i)
          EXPECT_TRUE(same_bits(few[i], first_rows(together[i], rows)))
              << rows << " rows, width " << width << ", product " << i << ", " << name_of(dtype);
      }
    }
}

// Layers of any width on one sample that has no axis for a batch: the width is summed over, and is not cut into tiles.
TEST(ReproducibleOps, AnUnbatchedNetwork) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t width : {8, 33, 200, 700}) {
      const auto network = [](std::span<const Value> v) {
        const Value hidden = tanh(matmul(v[0], v[1]) + v[2]);
        return std::vector<Value>{matmul(hidden, v[3]) + v[4], sum(hidden * hidden)};
      };
      const std::vector<Array> weights = {normal_array({24, width}, dtype, 1), normal_array({width}, dtype, 2),
                                          normal_array({width, 3}, dtype, 3), normal_array({3}, dtype, 4)};
      const Array rows = normal_array({17, 24}, dtype, 5);
      std::vector<Array> arguments = {rows};
      arguments.insert(arguments.end(), weights.begin(), weights.end());
      const std::vector<Array> whole = jit(vmap(network, {0, -1, -1, -1, -1}))(arguments);
      for (const std::int64_t row : {0, 16}) {
        arguments[0] = Array(dtype, {24});
        for (std::int64_t i = 0; i < 24; ++i) arguments[0].set(i, rows.at(row * 24 + i));
        const std::vector<Array> one = jit(network)(arguments);
        for (std::size_t o = 0; o < one.size(); ++o)
          EXPECT_EQ(
              std::memcmp(static_cast<const char*>(whole[o].raw()) + static_cast<std::size_t>(row) * one[o].bytes(),
                          one[o].raw(), one[o].bytes()),
              0)
              << name_of(dtype) << ", width " << width << ", row " << row << ", output " << o;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Reproducible,
                         ::testing::Values(Case{"lstm", DType::F32}, Case{"lstm", DType::F64}, Case{"gru", DType::F32},
                                           Case{"gru", DType::F64}, Case{"mlp", DType::F32}, Case{"mlp", DType::F64},
                                           Case{"ln_lstm", DType::F32}, Case{"ln_lstm", DType::F64},
                                           Case{"sliced_gates", DType::F32}, Case{"sliced_gates", DType::F64}),
                         [](const auto& info) {
                           return info.param.cell + "_" + std::string(name_of(info.param.dtype));
                         });

}  // namespace
}  // namespace hotloop
