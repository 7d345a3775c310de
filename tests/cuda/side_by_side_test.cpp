// Workers of several blocks side by side, which divide the columns of products among them: when there are some, and that they change no bit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "cuda/program_fixture.h"
#include "user_cells.h"

namespace hotloop {
namespace {

class CudaSideBySide : public CudaPrograms {
 protected:
  CudaSideBySide() {
    if (const char* set = std::getenv("HOTLOOP_CUDA_BLOCKS")) outside_ = set;
    unsetenv("HOTLOOP_CUDA_BLOCKS");
  }
  ~CudaSideBySide() override {
    unsetenv("HOTLOOP_CUDA_BLOCKS");
    if (outside_) set_blocks(*outside_);
  }
  static void set_blocks(const std::string& blocks) { setenv("HOTLOOP_CUDA_BLOCKS", blocks.c_str(), 1); }
  static CompileOptions with_source() {
    CompileOptions options = on_cuda();
    options.keep_source = true;
    return options;
  }
  static int blocks_of(const Executable& e) {
    const std::string name = "#define HL_BLOCKS ";
    return std::stoi(e.source().substr(e.source().find(name) + name.size()));
  }

 private:
  std::optional<std::string> outside_;
};

// 160 units have 410 KB of weights a step, two samples would keep two multiprocessors busy.
TEST_F(CudaSideBySide, WeightsThatABlockHasNoRoomForAreKeptBySeveral) {
  const Training lstm(nn::LSTM(3, 160), 160, 2, 12);
  const auto training = lstm.step.graph();
  const nn::Sequential model(nn::LSTM(3, 160), nn::Last(), nn::Linear(160, 2));
  const Tree<Array> params = model.init(3);
  const auto forecast = train::predict_step(model, params, {DType::F32, {2, 4, 3}}).graph();
  std::vector<Array> inputs = params.flatten();
  inputs.push_back(numbers({DType::F32, {2, 4, 3}}, 7));

  set_blocks("auto");
  const EmulatedOptions large{.multiprocessors = 16, .near_bytes = 227 << 10};
  device(large);
  const Executable outputs = compile(forecast, with_source());
  EXPECT_GT(blocks_of(outputs), 1);
  EXPECT_NE(outputs.explain().find("side by side"), std::string::npos) << outputs.explain();
  EXPECT_TRUE(same_bits(outputs(inputs)[0], compile(forecast)(inputs)[0]));
  const Executable step = compile(training, with_source());
  EXPECT_GT(blocks_of(step), 1);
  const std::vector<Array> got = step(lstm.inputs(*training));
  expect_near(got, compile(training)(lstm.inputs(*training)), 1e-5);

  // Another device has no blocks that reach each other's memory, on another they are not near enough, on a third all multiprocessors have tiles.
  EmulatedOptions without = large, scattered = large, small = large;
  without.blocks_of_worker = 1;
  scattered.blocks_that_find_room = 1;
  small.multiprocessors = 2;
  for (const EmulatedOptions& options : {without, scattered, small}) {
    device(options);
    const Executable alone = compile(training, with_source());
    EXPECT_EQ(blocks_of(alone), 1);
    const std::vector<Array> same = alone(lstm.inputs(*training));
    for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(same_bits(same[k], got[k])) << "output " << k;
  }
  device({.multiprocessors = 16, .near_bytes = 227 << 10, .blocks_that_find_room = 2});
  EXPECT_EQ(blocks_of(compile(training, with_source())), 2);
}

// What fits is faster alone.
TEST_F(CudaSideBySide, SmallProgramsHaveABlockAWorker) {
  device({.multiprocessors = 132, .near_bytes = 227 << 10});
  const Training lstm(nn::LSTM(3, 32), 32, 4, 30);
  set_blocks("auto");
  EXPECT_EQ(blocks_of(compile(lstm.step.graph(), with_source())), 1);
}

TEST_F(CudaSideBySide, AnyNumberOfBlocksHasTheSameBits) {
  std::vector<Array> first, first_gru;
  for (const int blocks : {1, 2, 4, 8})
    for (const ThreadOrder order : {ThreadOrder::Forward, ThreadOrder::Backward, ThreadOrder::Random}) {
      device({.multiprocessors = 8, .near_bytes = 40 << 10, .order = order});
      set_blocks(std::to_string(blocks));
      const Training ln(nn::Recurrent(testing::LayerNormLstmCell(3, 24)), 24, 5, 6), gru(nn::GRU(3, 22), 22, 5, 130);
      for (const auto& [training, wanted] : {std::pair{&ln, &first}, {&gru, &first_gru}}) {
        const auto graph = training->step.graph();
        const Executable e = compile(graph, with_source());
        EXPECT_EQ(blocks_of(e), blocks);
        const std::vector<Array> got = e(training->inputs(*graph));
        if (wanted->empty()) *wanted = got;
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(same_bits(got[i], (*wanted)[i])) << "output " << i << ", " << blocks << " blocks";
      }
    }
}

// No device has run them yet.
TEST_F(CudaSideBySide, NobodyHasThemWithoutAsking) {
  device({.multiprocessors = 16, .near_bytes = 227 << 10});
  const Training lstm(nn::LSTM(3, 160), 160, 2, 4);
  EXPECT_EQ(blocks_of(compile(lstm.step.graph(), with_source())), 1);
  for (const char* wrong : {"3", "32", "0", "many", "2 "}) {
    set_blocks(wrong);
    EXPECT_THROW(compile(lstm.step.graph(), with_source()), UserError) << wrong;
  }
}

}  // namespace
}  // namespace hotloop
