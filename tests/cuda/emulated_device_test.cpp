// The emulator itself, by kernels written by hand: what it promises to them, and that it reports what breaks its
// contract.
#include "cuda/emulated_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "hotloop/error.h"

namespace hotloop::cuda {
namespace {

constexpr ThreadOrder orders[] = {ThreadOrder::Forward, ThreadOrder::Backward, ThreadOrder::Random};

const std::vector<std::int32_t> no_input = {0};

const std::string head = std::string(without_a_device_part) + R"(typedef struct {
  void* const* arguments;
  void* const* results;
  unsigned char* shared;
  unsigned char* scratch;
  int64_t scratch_stride;
  int64_t rows;
  const int32_t* cancel;
  uint32_t* barrier;
} hl_context;
)";

std::string kernel(int threads, const std::string& body) {
  return "#define HL_THREADS " + std::to_string(threads) + "\n" + head +
         "HL_KERNEL void hotloop_kernel(hl_context ctx) {\n" + body + "}\n";
}

// Rows, divided among blocks, summed: by groups of 32, then through shared memory.
const std::string sum_kernel = kernel(128, R"(
  const float* x = (const float*)ctx.arguments[0];
  float* near = (float*)hl_near();
  float sum = 0;
  for (int64_t i = hl_worker() * HL_THREADS + hl_thread(); i < ctx.rows; i += hl_num_workers() * HL_THREADS) sum += x[i];
  for (int delta = 16; delta > 0; delta /= 2) sum += hl_down(sum, delta, 32);
  if (hl_thread() % 32 == 0) near[hl_thread() / 32] = sum;
  hl_sync();
  if (hl_thread() == 0) ((float*)ctx.results[0])[hl_worker()] = near[0] + near[1] + near[2] + near[3];
)");

// Each step each thread of all takes its right neighbour's number and adds one: neighbours of other blocks too.
const std::string ring_kernel = kernel(64, R"(
  int32_t* now = (int32_t*)ctx.shared;
  const int size = hl_num_workers() * HL_THREADS, me = hl_worker() * HL_THREADS + hl_thread();
  int32_t* next = now + size;
  now[me] = me;
  for (int64_t step = 0; step < ctx.rows; ++step) {
    if (hl_meet(ctx.barrier, ctx.cancel)) return;
    next[me] = now[(me + 1) % size] + 1;
    int32_t* last = now;
    now = next;
    next = last;
  }
  ((int32_t*)ctx.results[0])[me] = now[me];
)");

// A kernel with what it needs in the memory of a device.
class Launcher {
 public:
  explicit Launcher(EmulatedDevice& device) : device_(device), stream_(device.stream()) {
    cancel_ = filled(sizeof(std::int32_t), 0);
    barrier_ = filled(2 * sizeof(std::uint32_t), 0);
  }
  ~Launcher() {
    for (const Address at : held_) device_.release(at);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  Address filled(std::size_t bytes, unsigned char byte) {
    const Address at = device_.allocate(bytes);
    held_.push_back(at);
    stream_->fill(at, byte, bytes);
    return at;
  }
  template <class T> Address table(const std::vector<T>& numbers) {
    const Address at = device_.allocate(numbers.size() * sizeof(T));
    held_.push_back(at);
    stream_->copy_in(at, numbers.data(), numbers.size() * sizeof(T));
    return at;
  }
  template <class T> std::vector<T> read(Address at, std::size_t size) {
    std::vector<T> numbers(size);
    stream_->copy_out(numbers.data(), at, size * sizeof(T));
    stream_->wait();
    return numbers;
  }
  void set_cancel(std::int32_t cancel) { stream_->copy_in(cancel_, &cancel, sizeof cancel); }
  void clear_barrier() { stream_->fill(barrier_, 0, 2 * sizeof(std::uint32_t)); }

  // The results of `size` numbers, of which the kernel may leave some as they were: all bits set.
  template <class Out, class In> std::vector<Out> run(const std::string& source, int workers, int threads,
                                                      const std::vector<In>& x, std::size_t size, std::int64_t rows) {
    return run<Out>(source, {.workers = workers, .threads = threads, .near_bytes = 1024}, x, size, rows);
  }
  template <class Out, class In> std::vector<Out> run(const std::string& source, const LaunchShape& shape,
                                                      const std::vector<In>& x, std::size_t size, std::int64_t rows) {
    const auto code = device_.compile(source, {});
    const Address result = filled(size * sizeof(Out), 0xff);
    KernelArguments arguments;
    arguments.arguments = table<Address>({table(x)});
    arguments.results = table<Address>({result});
    arguments.shared = filled(1 << 16, 0xff);
    arguments.rows = rows;
    arguments.cancel = cancel_;
    arguments.barrier = barrier_;
    stream_->launch(*code, shape, arguments);
    return read<Out>(result, size);
  }

 private:
  EmulatedDevice& device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Address> held_;
  Address cancel_ = 0, barrier_ = 0;
};

std::vector<std::int32_t> run_once(const std::string& source, int threads, EmulatedOptions options = {},
                                   int blocks = 1) {
  const auto device = make_emulated_device(options);
  return Launcher(*device).run<std::int32_t>(source, blocks, threads, no_input,
                                             static_cast<std::size_t>(blocks * threads), 1);
}

std::string error_of(const std::string& source, int threads, EmulatedOptions options = {}, int blocks = 1) {
  try {
    run_once(source, threads, options, blocks);
  } catch (const EmulationError& error) {
    return error.what();
  }
  return "no error";
}

void expect_holds(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(EmulatedDevice, SumsByBlocks) {
  for (const ThreadOrder order : orders) {
    const auto device = make_emulated_device({.order = order});
    std::vector<float> x(1000);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    const std::vector<float> sums = Launcher(*device).run<float>(sum_kernel, 5, 128, x, 5, 1000);
    float sum = 0;
    for (const float s : sums) sum += s;
    EXPECT_EQ(sum, 999 * 1000 / 2);
    EXPECT_EQ(device->bytes_in_use(), 0u);
    EXPECT_EQ(device->counters.launches, 1);
    EXPECT_EQ(device->counters.syncs, 5);
    EXPECT_EQ(device->counters.downs, 5 * 4 * 5);
    EXPECT_EQ(device->counters.compiles, 1);
    EXPECT_EQ(device->counters.bytes_out, 5 * 4);
    EXPECT_EQ(device->counters.bytes_in, 1000 * 4 + 2 * 8);
  }
}

TEST(EmulatedDevice, BlocksMeet) {
  for (const ThreadOrder order : orders) {
    const auto device = make_emulated_device({.order = order});
    Launcher on(*device);
    for (int launch = 0; launch < 2; ++launch) {
      const auto ring = on.run<std::int32_t>(ring_kernel, 6, 64, no_input, 384, 100);
      for (int i = 0; i < 384; ++i) ASSERT_EQ(ring[static_cast<std::size_t>(i)], (i + 100) % 384 + 100);
    }
    EXPECT_EQ(device->counters.meets, 200);
    EXPECT_EQ(device->counters.compiles, 1);
  }
}

TEST(EmulatedDevice, CancelledBlocksReturnAtDifferentPlaces) {
  const auto device = make_emulated_device({});
  Launcher on(*device);
  const auto untouched = std::vector<std::int32_t>(384, -1);
  on.set_cancel(1);
  EXPECT_EQ((on.run<std::int32_t>(ring_kernel, 6, 64, no_input, 384, 10)), untouched);
  EXPECT_EQ(device->counters.meets, 1);

  on.set_cancel(0);  // but the words of the barrier are what the cancelled run left
  EXPECT_THROW((on.run<std::int32_t>(ring_kernel, 6, 64, no_input, 384, 10)), EmulationError);

  on.clear_barrier();
  device->options.cancel_at_meet = 4;
  EXPECT_EQ((on.run<std::int32_t>(ring_kernel, 6, 64, no_input, 384, 10)), untouched);
  // At the last meeting half of the blocks learn of it too late to stop.
  device->options.cancel_at_meet = 9;
  on.clear_barrier();
  on.set_cancel(0);
  const auto late = on.run<std::int32_t>(ring_kernel, 6, 64, no_input, 384, 10);
  EXPECT_EQ(late[0], 20);
  EXPECT_EQ(late[64], -1);
}

TEST(EmulatedDevice, GroupsOfAnyWidth) {
  for (const int width : {1, 2, 4, 8, 16, 32}) {
    const std::string w = std::to_string(width);
    const auto got = run_once(kernel(96, "const double d = hl_down(hl_thread() + 0.5, " + w + " / 2, " + w +
                                             ");\n((int32_t*)ctx.results[0])[hl_thread()] = (int)(2 * d);\n"),
                              96);
    for (int i = 0; i < 96; ++i) {
      const int from = i % width + width / 2 < width ? i + width / 2 : i;
      EXPECT_EQ(got[static_cast<std::size_t>(i)], 2 * from + 1) << width << " " << i;
    }
  }
}

TEST(EmulatedDevice, AnyIsOfTheWorker) {
  const auto got = run_once(kernel(64, R"(
    const int me = hl_worker() * HL_THREADS + hl_thread();
    int32_t n = 0;
    while (hl_any(n < 3 * hl_worker() && hl_thread() == 17)) ++n;
    ((int32_t*)ctx.results[0])[me] = n;
  )"),
                            64, {}, 3);
  for (int i = 0; i < 192; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], i / 64 * 3);
}

TEST(EmulatedDevice, FunctionsOfNumbers) {
  const auto got = run_once(kernel(1, R"(
    hl_wide product = (hl_wide)UINT64_MAX * 3;
    ((int32_t*)ctx.results[0])[0] =
        HL_LIKELY(hl_fabs_f32(-2.0f) == 2 && hl_floor_f64(-1.5) == -2 && hl_ceil_f32(1.5f) == 2) &&
        hl_rint_f64(2.5) == 2 && hl_sqrt_f32(9.0f) == 3 && hl_fma_f64(2, 3, 4) == 10 && hl_clz(0) == 64 &&
        hl_clz(1) == 63 && (uint64_t)(product >> 64) == 2 && INT32_MIN < 0 && UINT64_C(1) == 1;
  )"),
                            1);
  EXPECT_EQ(got[0], 1);
}

// Each thread passes its number to the next one through shared memory, without waiting until it is there.
TEST(EmulatedDevice, AMissingSyncShows) {
  const auto text = [](const std::string& sync) {
    return kernel(64, "int32_t* near = (int32_t*)hl_near();\nnear[hl_thread()] = hl_thread();\n" + sync +
                          "((int32_t*)ctx.results[0])[hl_thread()] = near[(hl_thread() + 1) % 64];\n");
  };
  std::vector<std::int32_t> wanted(64);
  for (int i = 0; i < 64; ++i) wanted[static_cast<std::size_t>(i)] = (i + 1) % 64;
  for (const ThreadOrder order : orders) {
    EXPECT_EQ(run_once(text("hl_sync();\n"), 64, {.order = order}), wanted);
    EXPECT_NE(run_once(text(""), 64, {.order = order}), wanted);
  }
  // Where only some read what others write after them, it needs the right order.
  const std::string one_way = kernel(64, R"(
    int32_t* near = (int32_t*)hl_near();
    near[hl_thread()] = hl_thread();
    ((int32_t*)ctx.results[0])[hl_thread()] = hl_thread() == 0 ? 0 : near[hl_thread() - 1];
  )");
  std::vector<std::int32_t> before(64);
  for (int i = 1; i < 64; ++i) before[static_cast<std::size_t>(i)] = i - 1;
  EXPECT_EQ(run_once(one_way, 64, {.order = ThreadOrder::Forward}), before);
  EXPECT_NE(run_once(one_way, 64, {.order = ThreadOrder::Backward}), before);
  const auto random = run_once(one_way, 64, {.order = ThreadOrder::Random, .seed = 3});
  EXPECT_NE(random, before);
  EXPECT_EQ(run_once(one_way, 64, {.order = ThreadOrder::Random, .seed = 3}), random);
  EXPECT_NE(run_once(one_way, 64, {.order = ThreadOrder::Random, .seed = 4}), random);
}

TEST(EmulatedDevice, DivergenceIsReported) {
  expect_holds(error_of(kernel(64, "if (hl_thread() < 3) return;\nhl_sync();\n"), 64),
               "worker 0: 61 of 64 threads (from 3) at hl_sync in line 17, 3 of 64 threads (from 0) returned");
  expect_holds(
      error_of(kernel(64, "if (hl_thread() < 3)\nhl_sync();\nelse\nhl_sync();\n"), 64),
      "threads of a worker wait at different places: worker 0: 3 of 64 threads (from 0) at hl_sync in line 17, "
      "61 of 64 threads (from 3) at hl_sync in line 19");
  expect_holds(error_of(kernel(64, "if (hl_thread() < 32) hl_down(1, 1, 32); else hl_sync();\nhl_sync();\n"), 64),
               "wait at different places");
  expect_holds(error_of(kernel(64, "if (hl_thread() % 2) hl_down(1, 1, 32); else hl_any(true);\n"), 64),
               "32 of 64 threads (from 0) at hl_any in line 16, 32 of 64 threads (from 1) at hl_down in line 16");
  expect_holds(error_of(kernel(64, "hl_down(1, 1, hl_thread() < 16 ? 16 : 32);\n"), 64), "threads wait for others");
  expect_holds(error_of(kernel(64, "hl_down(1, hl_thread() % 2, 32);\n"), 64), "different calls of hl_down");
  expect_holds(error_of(kernel(48, "hl_down(1, 1, 32);\n"), 48), "hl_down by 1 in groups of 32 among 48 threads");
  expect_holds(
      error_of(kernel(32, "if (hl_worker() == 1) return;\nhl_meet(ctx.barrier, ctx.cancel);\n"), 32, {}, 3),
      "worker 1: 32 of 32 threads (from 0) returned; worker 2: 32 of 32 threads (from 0) at hl_meet in line 17");
  expect_holds(error_of(kernel(32, "if (hl_thread() == 0 && hl_meet(ctx.barrier, ctx.cancel)) return;\n"), 32, {}, 2),
               "1 of 32 threads (from 0) at hl_meet in line 16");
}

// Two blocks a worker: each has near memory of its own, to which the other stores by hl_put alone, and threads that meet by themselves.
TEST(EmulatedDevice, BlocksOfAWorkerReachEachOther) {
  const std::string two = "#define HL_BLOCKS 2\n#define HL_BLOCK_THREADS 32\n" + kernel(64, R"(
    const int me = hl_thread();
    unsigned char* const memory = hl_near();
    int* const mine = (int*)memory;
    mine[hl_block_thread()] = 100 + me;
    hl_block_sync();
    const int neighbour = mine[(hl_block_thread() + 1) % 32];
    for (int i = 0; i <= hl_rank(); ++i) hl_block_sync();
    hl_sync();
    if (me == 3 || me == 40) hl_put(&mine[hl_rank()], me);
    hl_sync();
    ((int*)ctx.results[0])[hl_worker() * 64 + me] = 10000 * mine[0] + 100 * mine[1] + neighbour % 100;
  )");
  const auto device = make_emulated_device({});
  std::vector<std::int32_t> wanted;
  for (int worker = 0; worker < 3; ++worker)
    for (int me = 0; me < 64; ++me) wanted.push_back(10000 * 3 + 100 * 40 + (me / 32 * 32 + (me + 1) % 32) % 100);
  const LaunchShape shape{.workers = 3, .blocks = 2, .threads = 32, .near_bytes = 128};
  EXPECT_EQ(Launcher(*device).run<std::int32_t>(two, shape, no_input, 192, 1), wanted);
  const std::string apart = "#define HL_BLOCKS 2\n#define HL_BLOCK_THREADS 32\n" +
                            kernel(64, "if (hl_rank() == 0) hl_sync(); else hl_block_sync();\n");
  try {
    Launcher(*device).run<std::int32_t>(apart, shape, no_input, 192, 1);
    FAIL() << "one waits for two";
  } catch (const EmulationError& error) {
    expect_holds(error.what(), "worker 0: 32 of 64 threads (from 0) at hl_sync");
  }
}

TEST(EmulatedDevice, ALaunchAfterAnErrorIsSound) {
  const auto device = make_emulated_device({});
  Launcher on(*device);
  EXPECT_THROW((on.run<float>(kernel(64, "if (hl_thread() < 3) hl_sync();\n"), 2, 64, no_input, 2, 0)), EmulationError);
  EXPECT_EQ((on.run<float>(sum_kernel, 2, 128, std::vector<float>{1, 2, 3}, 2, 3)), (std::vector<float>{6, 0}));
}

TEST(EmulatedDevice, WritesBesideMemoryAreReported) {
  expect_holds(error_of(kernel(1, "((char*)ctx.results[0])[5] = 0;\n"), 1), "1 bytes behind an allocation of 4 bytes");
  expect_holds(error_of(kernel(1, "((char*)ctx.results[0])[-1] = 0;\n"), 1), "1 bytes before an allocation");
  expect_holds(error_of(kernel(1, "hl_near()[-3] = 0;\n"), 1), "3 bytes before the shared memory");
}

TEST(EmulatedDevice, MemoryIsPoisonedAndAligned) {
  const auto got = run_once(kernel(32, R"(
    ((int32_t*)ctx.results[0])[hl_thread()] = ((int32_t*)hl_near())[hl_thread()] + (uintptr_t)hl_near() % 128;
    ((int32_t*)hl_near())[hl_thread()] = 0;
  )"),
                            32);
  EXPECT_EQ(got, std::vector<std::int32_t>(32, -1));
  const auto device = make_emulated_device({.memory_bytes = 1000});
  const Address at = device->allocate(1000);
  EXPECT_EQ(at % 256, 0u);
  EXPECT_EQ(device->bytes_in_use(), 1000u);
  EXPECT_THROW((void)device->allocate(1), UserError);
  std::vector<unsigned char> bytes(1000);
  const auto stream = device->stream();
  stream->copy_out(bytes.data(), at, 1000);
  EXPECT_EQ(bytes, std::vector<unsigned char>(1000, 0xff));
  EXPECT_THROW(stream->copy_out(bytes.data(), at + 1, 1000), EmulationError);
  EXPECT_THROW(stream->fill(at - 1, 0, 2), EmulationError);
  device->release(at);
  EXPECT_EQ(device->bytes_in_use(), 0u);
}

TEST(EmulatedDeviceDeathTest, AHostThatFollowsAnAddressEnds) {
  const auto device = make_emulated_device({});
  const Address at = device->allocate(4);
  EXPECT_DEATH(*reinterpret_cast<volatile std::int32_t*>(at) = 1, "");
  device->release(at);
  EXPECT_DEATH(device->release(at), "is released, which is not allocated");
}

TEST(EmulatedDevice, DeferredStreamsWorkWhenWaitedFor) {
  const auto device = make_emulated_device({.deferred = true});
  const Address at = device->allocate(4);
  auto* pinned = static_cast<std::int32_t*>(device->allocate_pinned(4));
  EXPECT_EQ(device->pinned_bytes_in_use(), 4u);
  std::int32_t in = 1, out = 0;
  auto stream = device->stream();
  stream->copy_in(at, &in, 4);
  in = 2;
  stream->copy_out(&out, at, 4);
  EXPECT_EQ(out, 0);
  EXPECT_FALSE(stream->is_done());
  EXPECT_TRUE(stream->is_done());
  EXPECT_EQ(out, 1);
  *pinned = 3;
  stream->copy_in(at, pinned, 4);
  *pinned = 4;  // too early
  stream->copy_out(&out, at, 4);
  stream->wait();
  EXPECT_EQ(out, 4);
  device->release(at);
  device->release_pinned(pinned);
  EXPECT_EQ(device->pinned_bytes_in_use(), 0u);
}

TEST(EmulatedDevice, LaunchesThatNoDeviceRunsAreErrors) {
  const auto device = make_emulated_device({.multiprocessors = 3, .near_bytes = 64 << 10});
  const auto code = device->compile(sum_kernel, {});
  EXPECT_EQ(code->workers_at_once({.threads = 128}), 6);
  EXPECT_EQ(code->workers_at_once({.threads = 128, .near_bytes = 40 << 10}), 3);
  EXPECT_EQ(code->workers_at_once({.threads = 128, .near_bytes = (64 << 10) + 1}), 0);
  EXPECT_EQ(code->workers_at_once({.threads = 1025}), 0);
  EXPECT_EQ(code->workers_at_once({.blocks = 2, .threads = 128}), 3);
  EXPECT_EQ(code->workers_at_once({.blocks = 3, .threads = 128}), 0);
  EXPECT_EQ(code->workers_at_once({.blocks = 32, .threads = 128}), 0);
  EXPECT_FALSE(code->from_cache);
  EXPECT_TRUE(device->compile(sum_kernel, {})->from_cache);
  const auto stream = device->stream();
  EXPECT_THROW(stream->launch(*code, {.workers = 7, .threads = 128}, {}), EmulationError);
  EXPECT_THROW(stream->launch(*code, {.workers = 6, .threads = 64}, {}), EmulationError);
  EXPECT_THROW((void)device->compile("this is no kernel", {}), EmulationError);
}

}  // namespace
}  // namespace hotloop::cuda
