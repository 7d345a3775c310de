// A CUDA device through its driver: what can be checked on any machine, and a program where there is one.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/compiler.h"
#include "backends/cuda/device.h"
#include "backends/cuda/libraries.h"
#include "hotloop/error.h"
#include "variable.h"

namespace hotloop::cuda {
namespace {

namespace fs = std::filesystem;
using testing::Variable;

constexpr int any_major = std::numeric_limits<int>::max();

// All blocks wait for each other, then double the input: they must run at once, and see one another's additions.
const std::string doubling = R"(
struct KernelArguments {
  unsigned long long arguments, results, shared, scratch;
  long long scratch_stride, rows;
  unsigned long long cancel, barrier;
};
float doubled(float x) { return x + x; }
extern "C" __global__ void hotloop_kernel(KernelArguments kernel) {
  unsigned* arrived = (unsigned*)kernel.barrier;
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1u);
    while (*(volatile unsigned*)arrived < gridDim.x) {
    }
  }
  __syncthreads();
  const float* x = ((const float* const*)kernel.arguments)[0];
  float* y = ((float* const*)kernel.results)[0];
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < kernel.rows; i += gridDim.x * blockDim.x)
    y[i] = doubled(x[i]);
}
)";

class CudaCompiler : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    const auto nvrtc = open_nvrtc(any_major, why);
    if (!nvrtc) GTEST_SKIP() << why;
    compiler.emplace(*nvrtc);
    fs::remove_all(folder);
    fs::create_directory(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  std::optional<Compiler> compiler;
  const fs::path folder = ::testing::TempDir() + "hotloop_cuda_" + std::to_string(::getpid());
};

bool is_elf(const std::string& bytes) { return bytes.starts_with("\177ELF"); }

TEST_F(CudaCompiler, MakesCodeOfAnArchitectureThatItKnows) {
  for (const int capability : {75, 90}) {
    EXPECT_EQ(compiler->architecture(capability), "sm_" + std::to_string(capability));
    const Image image = compiler->compile(doubling, capability, {});
    EXPECT_TRUE(is_elf(image.bytes)) << capability;
    EXPECT_NE(image.bytes.find("hotloop_kernel"), std::string::npos);
    EXPECT_FALSE(image.from_cache);
  }
}

TEST_F(CudaCompiler, LeavesLaterArchitecturesToTheDriver) {
  EXPECT_TRUE(compiler->architecture(9990).starts_with("compute_"));
  const Image image = compiler->compile(doubling, 9990, {});
  EXPECT_FALSE(is_elf(image.bytes));
  EXPECT_NE(image.bytes.find(".visible .entry hotloop_kernel"), std::string::npos);
}

TEST_F(CudaCompiler, RoundsAsWritten) {
  const std::string source =
      "extern \"C\" __global__ void hotloop_kernel(float* x) { x[3] = x[0] * x[1] + x[2]; x[4] = x[0] / x[1]; }";
  const std::string ptx = compiler->compile(source, 9990, {}).bytes;
  EXPECT_NE(ptx.find("mul.rn.f32"), std::string::npos) << ptx;
  EXPECT_NE(ptx.find("add.rn.f32"), std::string::npos) << ptx;
  EXPECT_NE(ptx.find("div.rn.f32"), std::string::npos) << ptx;
  EXPECT_EQ(ptx.find("fma"), std::string::npos) << ptx;
  EXPECT_EQ(ptx.find(".ftz"), std::string::npos) << ptx;
}

TEST_F(CudaCompiler, FlushesDenormalsOfF32WhereItIsAsked) {
  const std::string source =
      "extern \"C\" __global__ void hotloop_kernel(float* x, double* y) { x[1] = x[0] * x[0] / x[2]; y[1] = y[0] * "
      "y[0]; }";
  const CodeOptions plain{.cache_dir = folder, .cache_bytes = 1 << 24};
  CodeOptions flushing = plain;
  flushing.flush_denormals = true;
  EXPECT_EQ(compiler->compile(source, 9990, plain).bytes.find(".ftz"), std::string::npos);
  const Image image = compiler->compile(source, 9990, flushing);
  EXPECT_FALSE(image.from_cache) << "another key";
  EXPECT_NE(image.bytes.find("mul.rn.ftz.f32"), std::string::npos) << image.bytes;
  EXPECT_NE(image.bytes.find("div.rn.ftz.f32"), std::string::npos) << image.bytes;
  EXPECT_NE(image.bytes.find("mul.rn.f64"), std::string::npos) << image.bytes;
}

TEST_F(CudaCompiler, FindsInTheCacheWhatItMadeBefore) {
  const CodeOptions options{.cache_dir = folder, .cache_bytes = 1 << 24};
  const Image first = compiler->compile(doubling, 90, options), second = compiler->compile(doubling, 90, options);
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(first.bytes, second.bytes);
  EXPECT_FALSE(compiler->compile(doubling, 75, options).from_cache);
  EXPECT_FALSE(compiler->compile(doubling + "\n", 90, options).from_cache);
}

TEST_F(CudaCompiler, RefusesABrokenSourceWithItsLog) {
  std::string source = "extern \"C\" __global__ void hotloop_kernel() { no_such_function(); }\n";
  for (int i = 0; i < 50; ++i) source += "int unknown_" + std::to_string(i) + " = no_such_name;\n";
  try {
    compiler->compile(source, 90, {});
    FAIL() << "it compiled";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("NVRTC_ERROR_COMPILATION"), std::string::npos) << text;
    EXPECT_NE(text.find("no_such_function"), std::string::npos) << text;
    EXPECT_LT(text.size(), 2400u);
  }
}

TEST_F(CudaCompiler, IsNoneThatIsNewerThanTheDriver) {
  std::string why;
  EXPECT_FALSE(open_nvrtc(1, why));
  EXPECT_NE(why.find("the driver of CUDA 1"), std::string::npos) << why;
}

TEST(CudaLibraries, SayWhichFileWasLookedFor) {
  const Variable chosen("HOTLOOP_NVRTC", "/no/such/libnvrtc.so");
  std::string why;
  EXPECT_FALSE(open_nvrtc(13, why));
  EXPECT_EQ(
      why,
      "NVRTC, the run-time compiler of CUDA, cannot be opened (/no/such/libnvrtc.so: cannot open shared object file: "
      "No such file or directory): Python's package nvidia-cuda-nvrtc has it, and "
      "HOTLOOP_NVRTC=<the path of libnvrtc.so.13> says where");
}

TEST(CudaLibraries, SayWhatALibraryLacks) {
  Dl_info libc{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::abort), &libc), 0);
  const Variable chosen("HOTLOOP_NVRTC", fs::canonical(libc.dli_fname));
  std::string why;
  EXPECT_FALSE(open_nvrtc(13, why));
  EXPECT_NE(why.find("lacks nvrtcGetErrorString"), std::string::npos) << why;
}

TEST(CudaDevice, IsHiddenByTheEnvironment) {
  const Variable off("HOTLOOP_CUDA", "off");
  std::string why;
  EXPECT_EQ(find_device(&why), nullptr);
  EXPECT_EQ(why, "HOTLOOP_CUDA=off hides it");
}

TEST(CudaDevice, IsMissingForAReason) {
  std::string why;
  if (find_device(&why) != nullptr) GTEST_SKIP() << "this machine has a device";
  EXPECT_FALSE(why.empty());
  std::string again;
  find_device(&again);
  EXPECT_EQ(again, why);
  EXPECT_EQ(find_device(), nullptr);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    EXPECT_NE(why.find("libcuda.so.1: cannot open"), std::string::npos) << why;
  }
}

class CudaProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    device = find_device(&why);
    if (device == nullptr) GTEST_SKIP() << why;
  }

  Device* device = nullptr;
};

TEST_F(CudaProgram, RunsAllBlocksAtOnce) {
  constexpr std::int64_t rows = 1'000'000;
  const auto code = device->compile(doubling, {});
  const auto stream = device->stream();
  const std::size_t bytes = rows * sizeof(float);
  const Address x = device->allocate(bytes), y = device->allocate(bytes), tables = device->allocate(16),
                barrier = device->allocate(8);
  EXPECT_EQ(x % 256, 0u);
  std::vector<float> values(rows);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (const std::int64_t near_bytes : {std::int64_t{0}, std::int64_t{60'000}, device->info().near_bytes}) {
    LaunchShape shape{.near_bytes = near_bytes};
    shape.workers = code->workers_at_once(shape);
    ASSERT_GT(shape.workers, 0) << near_bytes;
    std::vector<float> input = values, output(rows);
    stream->copy_in(x, input.data(), bytes);
    std::ranges::fill(input, -1.0f);  // was read
    Address table[] = {x, y};
    stream->copy_in(tables, table, sizeof table);
    std::ranges::fill(table, Address{0});
    stream->fill(y, 0xff, bytes);
    stream->fill(barrier, 0, 8);
    const KernelArguments arguments{
        .arguments = tables, .results = tables + 8, .rows = rows, .cancel = 0, .barrier = barrier};
    stream->launch(*code, shape, arguments);
    stream->copy_out(output.data(), y, bytes);
    stream->wait();
    EXPECT_TRUE(stream->is_done());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(output[i], 2 * values[i]) << i;
  }
  EXPECT_EQ(code->workers_at_once({.near_bytes = device->info().near_bytes + 1}), 0);
  for (const Address at : {x, y, tables, barrier}) device->release(at);
}

TEST_F(CudaProgram, CopiesFromPinnedMemory) {
  constexpr std::size_t bytes = 1 << 20;
  const auto stream = device->stream();
  auto* in = static_cast<char*>(device->allocate_pinned(bytes));
  auto* out = static_cast<char*>(device->allocate_pinned(bytes));
  const Address at = device->allocate(bytes);
  for (std::size_t i = 0; i < bytes; ++i) in[i] = static_cast<char>(i * 7);
  stream->copy_in(at, in, bytes / 2);
  stream->copy_in(at + bytes / 2, in + bytes / 2, bytes / 2);
  stream->copy_out(out, at, bytes);
  stream->wait();
  EXPECT_EQ(std::memcmp(in, out, bytes), 0);
  device->release(at);
  device->release_pinned(in);
  device->release_pinned(out);
}

TEST_F(CudaProgram, SaysWhatMemoryIsMissing) {
  try {
    device->allocate(std::size_t{1} << 45);
    FAIL() << "there was room";
  } catch (const UserError& error) {
    EXPECT_EQ(error.where(), "cuda");
    EXPECT_EQ(error.requirement().find("needs 35.2 TB more of the memory of the device"), 0u) << error.what();
    EXPECT_EQ(error.received(), "CUDA_ERROR_OUT_OF_MEMORY: out of memory");
  }
}

TEST_F(CudaProgram, IsNotForAForkedProcess) {
  const Address at = device->allocate(64);
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    bool is_refused = find_device(&why) == nullptr && why.find("forked") != std::string::npos;
    try {
      device->allocate(64);
      is_refused = false;
    } catch (const UserError&) {
    }
    device->release(at);  // the parent's: nothing happens
    _exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  device->release(at);
}

}  // namespace
}  // namespace hotloop::cuda
