// Exports: the object, and the source compiled by the system's compiler, give the stream's bits and need nothing but memcpy and memset.
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "exports.h"
#include "hotloop/error.h"
#include "hotloop/export.h"
#include "hotloop/ops.h"
#include "schedule/host.h"
#include "schedule/kernel_ir.h"
#include "user_cells.h"

namespace hotloop {
namespace {

using testing::Beside;
using testing::Exports;
using testing::target_of;

template <class T> void expect_the_streams_bits(const nn::Layer& model, std::int64_t features, std::int64_t outputs,
                                                const std::string& target = "host") {
  const Tree<Array> params = model.init(7, dtype_of<T>()), others = model.init(8, dtype_of<T>());
  const Tree<Array> buffers = model.init_buffers(dtype_of<T>());
  StreamOptions options;
  options.buffers = buffers;
  const ExportedC files = export_c(model, params, features, {.name = "net", .target = target, .stream = options});
  options.compile.target = target_of(files.targets.front());
  const Stream stream(model, params, features, options), other(model, others, features, options);
  for (const bool from_object : {false, true}) {
    const std::string what = files.targets.front() + (from_object ? " object" : " source");
    Exports<T> exports(files, from_object);
    EXPECT_EQ(files.voice_bytes, exports.voice_bytes());
    EXPECT_EQ(files.weight_bytes, exports.weights_bytes());
    void* voice = exports.new_voice();
    void* second = exports.new_voice();
    EXPECT_EQ(exports.init(voice, nullptr), 0);
    // Another voice with other weights, which were prepared from parameters.
    std::vector<const void*> pointers;
    for (const Array& leaf : others.flatten()) pointers.push_back(leaf.raw());
    for (const Array& leaf : buffers.flatten()) pointers.push_back(leaf.raw());
    void* weights = exports.new_weights();
    EXPECT_EQ(exports.prepare(weights, pointers.data()), 0);
    EXPECT_EQ(exports.init(second, weights), 0);
    Beside<T> exported(exports, voice, stream.voice(), features, outputs);
    Beside<T> prepared(exports, second, other.voice(), features, outputs);
    std::mt19937 generator(5);
    for (int t = 0; t < 9; ++t) {
      if (t == 6) exported.reset();
      prepared.step(generator, what + ", other weights, step " + std::to_string(t));
      exported.step(generator, what + ", step " + std::to_string(t));
    }
    // New weights for a voice that goes on: what it remembers stays.
    exports.set_weights(second, nullptr);
    exports.set_weights(second, weights);
    prepared.step(generator, what + ", after both weights");
  }
}

// Those that this machine runs.
std::vector<std::string> levels() {
  std::vector<std::string> all;
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"})
    if (kernel::host_runs(target_of(level)) && (target_of(level) != "portable" || !kernel::host_runs("neon")))
      all.push_back(level);
  return all;
}

TEST(ExportC, GivesTheStreamsBits) {
  expect_the_streams_bits<float>(nn::Sequential(nn::LSTM(5, 32), nn::Last(), nn::Linear(32, 3)), 5, 3);
  expect_the_streams_bits<double>(nn::Sequential(nn::GRU(4, 12, 2), nn::Linear(12, 2)), 4, 2);
  expect_the_streams_bits<float>(
      nn::Sequential(nn::Conv1d(2, 6, 3, {.dilation = 2, .groups = 2}), nn::PReLU(6), nn::Linear(6, 1)), 2, 1);
  expect_the_streams_bits<float>(
      nn::Sequential(nn::Recurrent(testing::LayerNormLstmCell(3, 17)), nn::Activation("relu"), nn::Linear(17, 1)), 3,
      1);
  // Products of many features; those of few outputs are sums over lanes.
  expect_the_streams_bits<float>(nn::Sequential(nn::LSTM(70, 20), nn::Linear(20, 1)), 70, 1);
  expect_the_streams_bits<float>(nn::LSTM(64, 1), 64, 1);
  expect_the_streams_bits<double>(nn::GRU(80, 1), 80, 1);
}

TEST(ExportC, FunctionsAreIncluded) {
  expect_the_streams_bits<float>(nn::Recurrent(testing::FunctionsCell(3, 20)), 3, 20);
  expect_the_streams_bits<double>(nn::Recurrent(testing::FunctionsCell(3, 20)), 3, 20);
  expect_the_streams_bits<float>(nn::Sequential(nn::GRU(3, 8), nn::Activation("gelu"), nn::Linear(8, 1)), 3, 1);
  for (const std::string& level : levels())
    expect_the_streams_bits<float>(nn::Recurrent(testing::FunctionsCell(3, 20)), 3, 20, level);
}

// Counts from numbers that a double rounds, and gives how far it is from them.
class FarCounter : public nn::Cell {
 public:
  Tree<Array> init(const nn::Seed&, DType dtype, nn::Init) const override {
    return {{"weight", Array::full(dtype, {2}, 1)}};
  }
  Tree<Value> initial_state(std::int64_t batch, DType) const override {
    return {{"count", broadcast_to(constant(far()), {batch, 2})}};
  }
  std::pair<Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& state, Value x) const override {
    const Value count = state["count"] + broadcast_to(constant(3, DType::I64), state["count"].shape());
    const Value distance = cast(count - broadcast_to(constant(far()), count.shape()), x.dtype());
    return {{{"count", count}}, p["weight"] * distance + x};
  }

 private:
  static Array far() {
    return Array::from<std::int64_t>({(std::int64_t{1} << 60) + 1, std::numeric_limits<std::int64_t>::min()}, {2});
  }
};

TEST(ExportC, IntegersOfAStateKeepTheirDigits) { expect_the_streams_bits<float>(nn::Recurrent(FarCounter()), 2, 2); }

TEST(ExportC, EveryLevelThatThisMachineRuns) {
  const nn::Sequential model(nn::LSTM(5, 40), nn::BatchNorm(40), nn::Linear(40, 2));
  for (const std::string& level : levels()) expect_the_streams_bits<float>(model, 5, 2, level);
}

// One object for several levels takes the highest one that the processor runs.
TEST(ExportC, AnObjectForSeveralLevels) {
  const std::vector<std::string> all = levels();
  if (all.size() == 1) GTEST_SKIP() << "this machine runs one level";
  const std::string some = all.size() == 3 ? "x86-64-v2,x86-64-v4,x86-64-v3" : "x86-64-v3,x86-64-v2";
  expect_the_streams_bits<float>(nn::Sequential(nn::GRU(3, 24), nn::Linear(24, 1)), 3, 1, some);
}

TEST(ExportC, AnotherMachinesFiles) {
  const nn::Sequential model(nn::LSTM(3, 8), nn::Linear(8, 1));
  // The machine of an ELF file's header: EM_X86_64, EM_AARCH64.
  for (const auto& [target, machine] : {std::pair("x86-64-v3", 62), {"aarch64", 183}}) {
    const ExportedC files = export_c(model, model.init(0), 3, {.name = "net", .target = target});
    ASSERT_GT(files.object.size(), 20u);
    EXPECT_EQ(static_cast<unsigned char>(files.object[18]), machine) << target;
    EXPECT_NE(files.source.find("net_step"), std::string::npos);
  }
  for (const char* target : {"x86-64-v5", "", "x86-64-v3,", "aarch64,x86-64-v3"})
    EXPECT_THROW(export_c(model, model.init(0), 3, {.name = "net", .target = target}), UserError) << target;
}

TEST(ExportC, RefusesANameThatIsNoIdentifier) {
  const nn::Sequential model(nn::Linear(2, 1));
  for (const char* name : {"", "2net", "my-net", "a b"})
    EXPECT_THROW(export_c(model, model.init(0), 2, {.name = name}), UserError) << name;
}

}  // namespace
}  // namespace hotloop
