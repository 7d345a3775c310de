#include "cuda/emulated_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "cuda/emulated_device.h"

extern char** environ;

namespace hotloop::cuda::emulated {

namespace {

namespace fs = std::filesystem;

class PrivateDirectory {
 public:
  PrivateDirectory() {
    std::string pattern = (fs::temp_directory_path() / "hotloop-emulated-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw EmulationError("no temporary directory: " + pattern);
    path_ = pattern;
  }
  ~PrivateDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

int run_command(const std::vector<std::string>& command, const fs::path& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

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
  for (const char* word : {"-std=gnu++17", "-O1", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-fPIC",
                           "-shared", "-w", "-DHL_EMULATED"}) {
    command.emplace_back(word);
  }
#if defined(__x86_64__)
  command.emplace_back("-march=native");
#endif
  for (const std::string& word : {std::string("-include"), before.string(), text.string(), std::string("-o"),
                                  object.string(), std::string("-lm")}) {
    command.push_back(word);
  }
  if (run_command(command, log) != 0) {
    std::ostringstream said;
    said << std::ifstream(log).rdbuf();
    throw EmulationError("the rendered CUDA does not compile: " + said.str().substr(0, 4000));
  }
  auto loaded = std::make_shared<Loaded>();
  loaded->handle = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded->handle == nullptr) {
    throw EmulationError(std::string("the compiled kernel does not load: ") + dlerror());
  }
  loaded->kernel = symbol<KernelFunction>(loaded->handle, "hotloop_kernel");
  loaded->part = symbol<Part* (*)()>(loaded->handle, "hl_emulated_part")();
  loaded->threads = symbol<int (*)()>(loaded->handle, "hl_emulated_threads")();
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
