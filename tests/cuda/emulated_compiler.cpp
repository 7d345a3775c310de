#include "cuda/emulated_compiler.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/render/system_compiler.h"
#include "cuda/emulated_device.h"

namespace hotloop::cuda::emulated {

namespace {

namespace fs = std::filesystem;

using render::PrivateDirectory;
using render::read_text;
using render::run_command;

template <class Function> Function symbol(void* handle, const char* name) {
  void* found = dlsym(handle, name);
  if (found == nullptr) throw EmulationError(std::string("the rendered CUDA has no ") + name);
  return reinterpret_cast<Function>(found);
}

std::shared_ptr<Loaded> compile_now(const std::string& source) {
  const PrivateDirectory directory;
  const fs::path before = directory / "before.h", text = directory / "kernel.cpp", object = directory / "kernel.so",
                 log = directory / "log";
  std::ofstream(before) << part_before;
  std::ofstream(text) << source << part_behind;
  const char* chosen = std::getenv("CXX");
  std::vector<std::string> command = {chosen != nullptr && *chosen != '\0' ? chosen : "c++"};
  for (const char* word : {"-std=gnu++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared", "-w",
                           "-DHL_EMULATED"}) {
    command.emplace_back(word);
  }
#if defined(__x86_64__)
  command.emplace_back("-march=native");
#endif
  for (const std::string& word : {std::string("-include"), before.string(), text.string(), std::string("-o"),
                                  object.string(), std::string("-lm")}) {
    command.push_back(word);
  }
  const render::CommandResult result = run_command(command, log);
  if (result.end != render::CommandResult::End::Exited || result.number != 0) {
    throw EmulationError("the rendered CUDA does not compile: " + read_text(log).substr(0, 4000));
  }
  auto loaded = std::make_shared<Loaded>();
  loaded->handle = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded->handle == nullptr) {
    throw EmulationError(std::string("the compiled kernel does not load: ") + dlerror());
  }
  loaded->kernel = symbol<KernelFunction>(loaded->handle, "hotloop_kernel");
  loaded->part = symbol<Part* (*)()>(loaded->handle, "hl_emulated_part")();
  loaded->threads = symbol<int (*)()>(loaded->handle, "hl_emulated_threads")();
  loaded->blocks = symbol<int (*)()>(loaded->handle, "hl_emulated_blocks")();
  loaded->code_bytes = static_cast<std::size_t>(fs::file_size(object));
  return loaded;
}

}  // namespace

Loaded::~Loaded() {
  if (handle != nullptr) dlclose(handle);
}

std::shared_ptr<Loaded> compile_once(const std::string& source) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Loaded>> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Loaded>& loaded = known[source];
  if (loaded == nullptr) loaded = compile_now(source);
  return loaded;
}

}  // namespace hotloop::cuda::emulated
