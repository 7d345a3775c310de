// Exported C: compiled by the system's compiler it gives the stream's bits and needs nothing but memcpy and memset.
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "hotloop/error.h"
#include "hotloop/export.h"
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

std::string march() {
  const std::string target = kernel::host_target().name;
  return target == "avx512" ? "-march=x86-64-v4" : target == "avx2" ? "-march=x86-64-v3" : "-march=x86-64-v2";
}

template <class T> void expect_the_streams_bits(const nn::Layer& model, std::int64_t features, std::int64_t outputs) {
  const Tree<Array> params = model.init(7, dtype_of<T>());
  const ExportedC files = export_c(model, params, features, {.name = "net"});
  const Folder folder;
  std::ofstream(folder / "net.h") << files.header;
  // Functions with addresses for dlsym, and a voice of the library's own alignment.
  std::ofstream(folder / "net.c") << files.source << "\nunsigned long net_size(void) { return sizeof(net_voice); }\n";
  const std::string base =
      "cc -std=c11 -O2 -Wall -Wextra -Wno-unknown-pragmas -Werror -ffp-contract=off -fno-math-errno " + march() +
      " -fPIC ";
  output_of(base + "-c -o " + (folder / "net.o").string() + " " + (folder / "net.c").string() + " 2>&1");
  std::istringstream undefined(output_of("nm -u " + (folder / "net.o").string()));
  for (std::string word; undefined >> word;) {
    if (word != "U") {
      EXPECT_TRUE(word == "memcpy" || word == "memset" || word == "_GLOBAL_OFFSET_TABLE_") << word;
    }
  }
  output_of(base + "-shared -o " + (folder / "net.so").string() + " " + (folder / "net.o").string() + " 2>&1");
  // The header is C++ as well.
  std::ofstream(folder / "use.cpp") << "#include \"net.h\"\nint use() { return net_INPUTS; }\n";
  output_of("c++ -std=c++17 -Wall -Werror -fsyntax-only " + (folder / "use.cpp").string() + " 2>&1");

  void* library = dlopen((folder / "net.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto size = reinterpret_cast<unsigned long (*)()>(dlsym(library, "net_size"))();
  const auto init = reinterpret_cast<void (*)(void*, const void*)>(dlsym(library, "net_init"));
  const auto reset = reinterpret_cast<void (*)(void*)>(dlsym(library, "net_reset"));
  const auto step = reinterpret_cast<void (*)(void*, const T*, T*)>(dlsym(library, "net_step"));
  const auto* weights = static_cast<const char*>(dlsym(library, "net_exported_weights"));
  ASSERT_TRUE(init && reset && step && weights);
  void* first = std::aligned_alloc(64, (size + 63) / 64 * 64);
  void* second = std::aligned_alloc(64, (size + 63) / 64 * 64);
  init(first, nullptr);
  init(second, weights);

  const Stream stream(model, params, features);
  Stream::Voice voice = stream.voice();
  std::mt19937 generator(5);
  std::normal_distribution<double> normal;
  std::vector<T> x(static_cast<std::size_t>(features)), y(static_cast<std::size_t>(outputs)), wanted(y.size());
  for (int t = 0; t < 9; ++t) {
    if (t == 6) {
      reset(first);
      voice.reset();
    }
    for (T& v : x) v = static_cast<T>(normal(generator));
    step(second, x.data(), y.data());  // another voice, that is not reset
    step(first, x.data(), y.data());
    voice.step(std::span<const T>(x), std::span<T>(wanted));
    EXPECT_EQ(std::memcmp(y.data(), wanted.data(), y.size() * sizeof(T)), 0)
        << "step " << t << ": " << y[0] << " and " << wanted[0];
  }
  std::free(first);
  std::free(second);
  dlclose(library);
}

TEST(ExportC, GivesTheStreamsBits) {
  expect_the_streams_bits<float>(nn::Sequential(nn::LSTM(5, 32), nn::Last(), nn::Linear(32, 3)), 5, 3);
  expect_the_streams_bits<double>(nn::Sequential(nn::GRU(4, 12, 2), nn::Linear(12, 2)), 4, 2);
  expect_the_streams_bits<float>(
      nn::Sequential(nn::Conv1d(2, 6, 3, {.dilation = 2, .groups = 2}), nn::PReLU(6), nn::Linear(6, 1)), 2, 1);
  expect_the_streams_bits<float>(
      nn::Sequential(nn::Recurrent(testing::LayerNormLstmCell(3, 17)), nn::Activation("relu"), nn::Linear(17, 1)), 3,
      1);
}

TEST(ExportC, RefusesANameThatIsNoIdentifier) {
  const nn::Sequential model(nn::Linear(2, 1));
  for (const char* name : {"", "2net", "my-net", "a b"})
    EXPECT_THROW(export_c(model, model.init(0), 2, {.name = name}), UserError) << name;
}

}  // namespace
}  // namespace hotloop
