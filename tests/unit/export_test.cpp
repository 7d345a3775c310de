// Exports: the object, and the source compiled by the system's compiler, give the stream's bits and need nothing but memcpy and memset.
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "hotloop/error.h"
#include "hotloop/export.h"
#include "schedule/host.h"
#include "schedule/kernel_ir.h"
#include "user_cells.h"

namespace hotloop {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "hotloop-export-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  char part[256];
  while (std::fgets(part, sizeof part, pipe) != nullptr) text += part;
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  return text;
}

// What an object or a library may want from others: nothing but memcpy and memset.
void expect_self_contained(const fs::path& object) {
  std::istringstream undefined(output_of("nm -u " + object.string()));
  for (std::string word; undefined >> word;) {
    if (word != "U") {
      EXPECT_TRUE(word == "memcpy" || word == "memset" || word == "_GLOBAL_OFFSET_TABLE_") << word;
    }
  }
}

// The functions of an export, linked from its object or from its source compiled here.
template <class T> class Exports {
 public:
  Exports(const ExportedC& files, bool from_object, const std::string& march) {
    std::ofstream(folder_ / "net.h") << files.header;
    std::ofstream(folder_ / "net.c") << files.source;
    std::ofstream(folder_ / "net.o") << files.object;
    // Sizes and parameters by number, for what a test cannot include.
    std::ofstream(folder_ / "sizes.c")
        << "#include \"net.h\"\nunsigned long net_size(void) { return sizeof(net_voice); }\n"
        << "unsigned long net_weights_size(void) { return sizeof(net_weights); }\n";
    const std::string cc =
        "cc -std=c11 -O2 -Wall -Wextra -Wno-unknown-pragmas -Werror -fPIC -ffp-contract=off -fno-math-errno ";
    const auto in_folder = [&](const char* name) { return (folder_ / name).string() + " "; };
    if (!from_object) output_of(cc + march + " -c -o " + in_folder("net.o") + in_folder("net.c") + "2>&1");
    expect_self_contained(folder_ / "net.o");
    output_of(cc + "-shared -o " + in_folder("net.so") + in_folder("net.o") + in_folder("sizes.c") + "2>&1");
    // The header is C++ as well.
    std::ofstream(folder_ / "use.cpp") << "#include \"net.h\"\nint use() { return net_INPUTS; }\n";
    output_of("c++ -std=c++17 -Wall -Werror -fsyntax-only " + in_folder("use.cpp") + "2>&1");
    library_ = dlopen((folder_ / "net.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    find(init, "net_init");
    find(prepare, "net_prepare");
    find(set_weights, "net_set_weights");
    find(reset, "net_reset");
    find(step, "net_step");
  }
  ~Exports() {
    for (void* memory : memory_) std::free(memory);
    dlclose(library_);
  }
  void* new_voice() { return allocated("net_size"); }
  void* new_weights() { return allocated("net_weights_size"); }

  int (*init)(void*, const void*) = nullptr;
  int (*prepare)(void*, const void*) = nullptr;
  void (*set_weights)(void*, const void*) = nullptr;
  void (*reset)(void*) = nullptr;
  void (*step)(void*, const T*, T*) = nullptr;

 private:
  template <class F> void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(name);
  }
  void* allocated(const char* size) {
    const auto bytes = reinterpret_cast<unsigned long (*)()>(dlsym(library_, size))();
    memory_.push_back(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    std::memset(memory_.back(), 0xA5, bytes);  // nothing may count on zeros
    return memory_.back();
  }
  Folder folder_;
  void* library_ = nullptr;
  std::vector<void*> memory_;
};

// A voice of an export beside one of the stream: x -> y, with the same bits.
template <class T> class Beside {
 public:
  Beside(Exports<T>& exports, void* voice, Stream::Voice stream, std::int64_t features, std::int64_t outputs)
      : exports_(exports),
        voice_(voice),
        stream_(std::move(stream)),
        x_(static_cast<std::size_t>(features)),
        y_(static_cast<std::size_t>(outputs)),
        wanted_(y_.size()) {}
  void step(std::mt19937& generator, const std::string& what) {
    std::normal_distribution<double> normal;
    for (T& v : x_) v = static_cast<T>(normal(generator));
    // Numbers below the normal range, which a step must neither flush nor trip over.
    if (generator() % 3 == 0) x_[0] = std::numeric_limits<T>::denorm_min() * static_cast<T>(1000);
    exports_.step(voice_, x_.data(), y_.data());
    stream_.step(std::span<const T>(x_), std::span<T>(wanted_));
    EXPECT_EQ(std::memcmp(y_.data(), wanted_.data(), y_.size() * sizeof(T)), 0)
        << what << ": " << y_[0] << " and " << wanted_[0];
  }
  void reset() {
    exports_.reset(voice_);
    stream_.reset();
  }

 private:
  Exports<T>& exports_;
  void* voice_;
  Stream::Voice stream_;
  std::vector<T> x_, y_, wanted_;
};

std::string target_of(const std::string& level) {
  return level == "x86-64-v4" ? "avx512" : level == "x86-64-v3" ? "avx2" : "portable";
}

template <class T> void expect_the_streams_bits(const nn::Layer& model, std::int64_t features, std::int64_t outputs,
                                                const std::string& target = "host") {
  const Tree<Array> params = model.init(7, dtype_of<T>()), others = model.init(8, dtype_of<T>());
  const Tree<Array> buffers = model.init_buffers(dtype_of<T>());
  const ExportedC files = export_c(model, params, features, {.name = "net", .target = target});
  StreamOptions options;
  options.compile.target = target_of(files.targets.front());
  const Stream stream(model, params, features, options), other(model, others, features, options);
  for (const bool from_object : {false, true}) {
    const std::string what = files.targets.front() + (from_object ? " object" : " source");
    Exports<T> exports(files, from_object, "-march=" + files.targets.front());
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

TEST(ExportC, EveryLevelThatThisMachineRuns) {
  const nn::Sequential model(nn::LSTM(5, 40), nn::BatchNorm(40), nn::Linear(40, 2));
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"})
    if (kernel::host_runs(target_of(level))) expect_the_streams_bits<float>(model, 5, 2, level);
}

// One object for several levels takes the highest one that the processor runs.
TEST(ExportC, AnObjectForSeveralLevels) {
  const std::string best = kernel::host_target().name;
  if (best == "portable") GTEST_SKIP() << "this machine runs one level";
  const std::string levels = best == "avx512" ? "x86-64-v2,x86-64-v4,x86-64-v3" : "x86-64-v3,x86-64-v2";
  expect_the_streams_bits<float>(nn::Sequential(nn::GRU(3, 24), nn::Linear(24, 1)), 3, 1, levels);
}

TEST(ExportC, AnotherMachinesFiles) {
  const nn::Sequential model(nn::LSTM(3, 8), nn::Linear(8, 1));
  const ExportedC files = export_c(model, model.init(0), 3, {.name = "net", .target = "aarch64"});
  EXPECT_TRUE(files.object.empty());
  EXPECT_NE(files.source.find("net_step"), std::string::npos);
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
