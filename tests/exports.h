// The functions of an export, linked from its object or from its source compiled here, beside the stream whose bits they promise.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
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

#include "hotloop/export.h"
#include "hotloop/stream.h"

namespace hotloop::testing {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hotloop-export-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  char part[256];
  while (std::fgets(part, sizeof part, pipe) != nullptr) text += part;
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  return text;
}

// What an object or a library may want from others: nothing but memcpy and memset.
inline void expect_self_contained(const std::filesystem::path& object) {
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
  Exports(const ExportedC& files, bool from_object) {
    std::ofstream(folder_ / "net.h") << files.header;
    std::ofstream(folder_ / "net.c") << files.source;
    std::ofstream(folder_ / "net.o") << files.object;
    // Sizes and parameters by number, for what a test cannot include.
    std::ofstream(folder_ / "sizes.c")
        << "#include \"net.h\"\nunsigned long net_size(void) { return sizeof(net_voice); }\n"
        << "unsigned long net_weights_size(void) { return sizeof(net_weights); }\n";
    // Without what some distributions' compilers add by default: functions that guard the stack and check copies.
    const std::string cc =
        "cc -std=c11 -O2 -Wall -Wextra -Werror -fPIC -ffp-contract=off -fno-math-errno "
        "-fno-stack-protector -U_FORTIFY_SOURCE ";
    const std::string& level = files.targets.front();
    const std::string march = level == "aarch64" ? "" : "-march=" + level;
    const auto in_folder = [&](const char* name) { return (folder_ / name).string() + " "; };
    if (!from_object) output_of(cc + march + " -c -o " + in_folder("net.o") + in_folder("net.c") + "2>&1");
    expect_self_contained(folder_ / "net.o");
    output_of(cc + "-shared -o " + in_folder("net.so") + in_folder("net.o") + in_folder("sizes.c") + "2>&1");
    // The header is C++ as well.
    std::ofstream(folder_ / "use.cpp") << "#include \"net.h\"\nint use() { return net_OUTPUTS; }\n";
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
  std::int64_t voice_bytes() const { return size("net_size"); }
  std::int64_t weights_bytes() const { return size("net_weights_size"); }

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
  std::int64_t size(const char* name) const {
    return static_cast<std::int64_t>(reinterpret_cast<unsigned long (*)()>(dlsym(library_, name))());
  }
  void* allocated(const char* name) {
    const auto bytes = static_cast<std::size_t>(size(name));
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

// Of an export's target, the name in CompileOptions::target, and back.
inline std::string target_of(const std::string& level) {
  return level == "x86-64-v4" ? "avx512" : level == "x86-64-v3" ? "avx2" : level == "aarch64" ? "neon" : "portable";
}
inline std::string level_of(const std::string& target) {
  return target == "avx512" ? "x86-64-v4" : target == "avx2" ? "x86-64-v3" : target == "neon" ? "aarch64" : "x86-64-v2";
}

}  // namespace hotloop::testing
