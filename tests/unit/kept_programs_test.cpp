// Programs that come from the disk by their graph: the same as when they were compiled, in all that can be asked of them.
#include "runtime/kept_programs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "cache_folder.h"
#include "hotloop/hotloop.h"
#include "runtime/cache_dir.h"
#include "schedule/host.h"
#include "variable.h"

namespace hotloop {
namespace {

namespace fs = std::filesystem;
using testing::normal_array;
using testing::same_bits;
using Types = std::vector<ValueType>;

class KeptPrograms : public ::testing::Test {
 protected:
  std::vector<fs::path> entries() const {
    return {fs::directory_iterator(runtime::disk_cache_dir()), fs::directory_iterator()};
  }

  const testing::CacheFolder folder;
};

// As a new process would begin: the memory has room for fewer programs.
void forget_programs() {
  static int serial = 0;
  CompileOptions options;
  options.backend = "interp";
  for (int i = 0; i < 200; ++i, ++serial)
    compile(trace([](std::span<const Value> v) { return std::vector<Value>{v[0] * (serial + 0.5)}; },
                  Types{{DType::F64, {7}}}),
            options);
}

bool comes_from_disk(const Executable& program) {
  return program.explain().find("program (from the cache)") != std::string::npos;
}

// What explain() says but for how long compiling took and what was measured.
std::string explained(const Executable& program) {
  const std::string text = program.explain();
  return text.substr(0, text.find("compiled "));
}

// Compiles twice, the second time from the disk.
std::pair<Executable, Executable> both(const std::shared_ptr<const Graph>& graph, const CompileOptions& options) {
  forget_programs();
  Executable first = compile(graph, options);
  EXPECT_FALSE(comes_from_disk(first));
  forget_programs();
  Executable again = compile(graph, options);
  EXPECT_TRUE(comes_from_disk(again)) << again.explain();
  return {std::move(first), std::move(again)};
}

void expect_same(const std::shared_ptr<const Graph>& graph, const CompileOptions& options,
                 const std::vector<Array>& arguments) {
  const auto [first, again] = both(graph, options);
  EXPECT_EQ(explained(again), explained(first));
  EXPECT_EQ(again.input_types(), first.input_types());
  EXPECT_EQ(again.output_types(), first.output_types());
  const std::vector<Array> wanted = first(arguments), got = again(arguments);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << i;
  KernelHistory::start();
  first(arguments);
  again(arguments);
  const std::vector<KernelRecord> launches = KernelHistory::stop();
  ASSERT_EQ(launches.size(), 2u);
  const KernelRecord &a = launches[0], &b = launches[1];
  EXPECT_EQ(b.name, a.name);
  EXPECT_EQ(b.rows, a.rows);
  EXPECT_EQ(b.num_workers, a.num_workers);
  EXPECT_EQ(std::tuple(b.num_dots, b.num_maps, b.num_loops, b.num_grids, b.num_sections),
            std::tuple(a.num_dots, a.num_maps, a.num_loops, a.num_grids, a.num_sections));
  EXPECT_EQ(std::tuple(b.shared_bytes, b.scratch_bytes, b.flops, b.bytes, b.flops_are_bound),
            std::tuple(a.shared_bytes, a.scratch_bytes, a.flops, a.bytes, a.flops_are_bound));
  // Nobody lowered it before.
  EXPECT_EQ(again.kernel_text(), first.kernel_text());
  EXPECT_EQ(again.graph_text(), first.graph_text());
}

using In = std::span<const Value>;

// A training step of a recurrence: new weights, and the loss.
std::shared_ptr<const Graph> training_step() {
  const TracedFunction loss = [](In v) {
    const Value x = transpose(v[1], {1, 0, 2}), h0 = slice(x, {0, 0, 0}, {1, x.shape()[1], x.shape()[2]});
    const auto last =
        scan([&](In h,
                 In x) { return std::pair(std::vector<Value>{tanh(matmul(h[0], v[0]) + x[0])}, std::vector<Value>{}); },
             std::vector<Value>{reshape(h0, {x.shape()[1], x.shape()[2]})}, std::vector<Value>{x});
    return std::vector<Value>{sum(last.first[0] * last.first[0])};
  };
  return trace(
      [&](In v) {
        const std::vector<Value> both = value_and_grad(loss, {0})(v);
        return std::vector<Value>{v[0] - 0.1 * both[1], both[0]};
      },
      Types{{DType::F32, {8, 8}}, {DType::F32, {24, 5, 8}}});
}
std::vector<Array> arguments_of_step(std::int64_t rows) {
  return {normal_array({8, 8}, DType::F32, 1), normal_array({rows, 5, 8}, DType::F32, 2)};
}

TEST_F(KeptPrograms, AreTheSameInAllThatCanBeAsked) {
  const auto graph = training_step();
  CompileOptions options;
  expect_same(graph, options, arguments_of_step(24));
  options.donated = {0};
  expect_same(graph, options, arguments_of_step(24));
  options.dot_precision = "bf16";
  expect_same(graph, options, arguments_of_step(24));
  options.threads = 2;
  expect_same(graph, options, arguments_of_step(24));
  options.flush_denormals = false;
  expect_same(graph, options, arguments_of_step(24));
  options.batch_axes = {-1, 0};
  expect_same(graph, options, arguments_of_step(5));
}

TEST_F(KeptPrograms, MayEndEarly) {
  const auto graph = trace(
      [](In v) {
        return while_loop([](In v) { return less(sum(v[0]), like(v[0], 100)); },
                          [](In v) { return std::vector<Value>{2.0 * v[0]}; }, std::vector<Value>{abs(v[0])}, 64);
      },
      Types{{DType::F64, {7}}});
  expect_same(graph, {}, {normal_array({7}, DType::F64, 3)});
}

// One row may do what couples rows, which is found out only when the program is scheduled.
TEST_F(KeptPrograms, OfOneRowThatIsCoupled) {
  const auto graph = trace([](In v) { return std::vector<Value>{reshape(v[0], {3})}; }, Types{{DType::F64, {1, 3}}});
  CompileOptions options;
  options.batch_axes = {0};
  expect_same(graph, options, {normal_array({1, 3}, DType::F64, 4)});
}

// What depends on weights alone comes from the disk as well, and so does what takes them in layouts.
TEST_F(KeptPrograms, OfWhatIsBound) {
  const auto graph = trace([](In v) { return std::vector<Value>{tanh(matmul(v[1], v[0]))}; },
                           Types{{DType::F32, {48, 96}}, {DType::F32, {1, 48}}});
  const std::vector<Array> bound = {normal_array({48, 96}, DType::F32, 5), Array{}};
  const std::vector<Array> x = {normal_array({1, 48}, DType::F32, 6)};
  for (const char* precision : {"f32", "bf16"}) {
    CompileOptions options;
    options.dot_precision = precision;
    forget_programs();
    const Executable first = compile_bound(graph, bound, options);
    forget_programs();
    const Executable again = compile_bound(graph, bound, options);
    EXPECT_TRUE(comes_from_disk(again)) << again.explain();
    EXPECT_TRUE(same_bits(again(x)[0], first(x)[0])) << precision;
    EXPECT_EQ(again.kernel_text(), first.kernel_text()) << precision;
    const std::vector<Array> others = {normal_array({48, 96}, DType::F32, 7)};
    EXPECT_TRUE(same_bits(rebind(again, others)(x)[0], rebind(first, others)(x)[0])) << precision;
  }
}

// Each is a key of its own: another constant, option, kind of the graph's inputs.
TEST_F(KeptPrograms, AreFoundByAllThatTheyDependOn) {
  const auto scaled = [](double factor, DType dtype) {
    return trace([=](In v) { return std::vector<Value>{v[0] * factor}; }, Types{{dtype, {3}}});
  };
  compile(scaled(2, DType::F32));
  forget_programs();
  EXPECT_TRUE(comes_from_disk(compile(scaled(2, DType::F32))));
  EXPECT_FALSE(comes_from_disk(compile(scaled(2.5, DType::F32))));
  EXPECT_FALSE(comes_from_disk(compile(scaled(2, DType::F64))));
  CompileOptions options;
  options.disabled_passes = {"all"};
  EXPECT_FALSE(comes_from_disk(compile(scaled(2, DType::F32), options)));
  options = {};
  options.batch_axes = {0};
  EXPECT_FALSE(comes_from_disk(compile(scaled(2, DType::F32), options)));
  options = {};
  options.keep_source = true;
  EXPECT_NE(compile(scaled(2, DType::F32), options).source(), "") << "a source is printed when code is made";
  kernel::Target target = kernel::host_target(), other = target;
  other.l1_bytes_there *= 2;
  EXPECT_NE(runtime::kept_key("graph", target), runtime::kept_key("graph", other));
  other = target;
  other.l2_bytes_there *= 2;
  EXPECT_NE(runtime::kept_key("graph", target), runtime::kept_key("graph", other));
  EXPECT_NE(runtime::kept_key("graph", target), runtime::kept_key("another", target));
}

// What tests ask of all programs by the environment makes other ones of them, on disk as in memory.
TEST_F(KeptPrograms, AreOthersWhereTheEnvironmentSaysSo) {
  const auto graph = training_step();
  CompileOptions options;
  options.threads = 2;
  for (const auto& [name, value] : {std::pair("HOTLOOP_TEAM", "always"), std::pair("HOTLOOP_TILES", "joined")}) {
    const testing::Variable unset(name, "");
    const Executable plain = compile(graph, options);
    EXPECT_EQ(&compile(graph, options).impl(), &plain.impl());
    const testing::Variable set(name, value);
    const Executable other = compile(graph, options);
    EXPECT_NE(&other.impl(), &plain.impl()) << name;
    EXPECT_FALSE(comes_from_disk(other)) << name;
  }
}

// Code that was removed since, to make room, and entries that something damaged.
TEST_F(KeptPrograms, WithoutTheirCodeAreCompiledAgain) {
  const auto graph = trace([](In v) { return std::vector<Value>{tanh(v[0])}; }, Types{{DType::F32, {5}}});
  const std::vector<Array> x = {normal_array({5}, DType::F32, 8)};
  const Array wanted = compile(graph)(x)[0];
  const std::vector<fs::path> both_entries = entries();
  ASSERT_EQ(both_entries.size(), 2u);
  for (const fs::path& entry : both_entries) {
    fs::remove(entry);
    forget_programs();
    Executable again = compile(graph);
    EXPECT_FALSE(comes_from_disk(again));
    EXPECT_TRUE(same_bits(again(x)[0], wanted));
    ASSERT_TRUE(fs::exists(entry));
    fs::resize_file(entry, fs::file_size(entry) - 1);
    forget_programs();
    again = compile(graph);
    EXPECT_FALSE(comes_from_disk(again));
    EXPECT_TRUE(same_bits(again(x)[0], wanted));
    forget_programs();
    EXPECT_TRUE(comes_from_disk(compile(graph))) << "written anew";
  }
}

// An entry whose checksum is right, but which is none of a program.
TEST_F(KeptPrograms, AreReadToTheirEnd) {
  const codegen::ObjectCache cache(folder.path(), 1 << 20);
  const runtime::KeptProgram program{{"name", 3, {0, -1}, {}, {"a line", ""}, {2.5, true}}, {}, "code"};
  runtime::keep(cache, "key", program);
  const auto found = runtime::find_kept(cache, "key");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->facts.pass_lines, program.facts.pass_lines);
  EXPECT_EQ(found->facts.output_batch_axes, program.facts.output_batch_axes);
  EXPECT_EQ(found->code, "code");
  const std::string entry = *cache.find("key");
  for (std::size_t size = 0; size < entry.size(); ++size) {
    cache.insert("cut", entry.substr(0, size));
    EXPECT_FALSE(runtime::find_kept(cache, "cut")) << size;
  }
  cache.insert("long", entry + " ");
  EXPECT_FALSE(runtime::find_kept(cache, "long"));
  cache.insert("wild", std::string(entry.size(), '\xff'));
  EXPECT_FALSE(runtime::find_kept(cache, "wild"));
}

}  // namespace
}  // namespace hotloop
