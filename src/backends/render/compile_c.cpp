// Plain C through the system's compiler: the second consumer of kernel IR, and a way to run without LLVM.
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backends/backend.h"
#include "backends/render/renderer.h"
#include "backends/render/system_compiler.h"
#include "hotloop/error.h"

namespace hotloop {
namespace {

namespace fs = std::filesystem;

using render::CommandResult;
using render::PrivateDirectory;
using render::read_text;
using render::run_command;

std::vector<std::string> compiler_command(const kernel::Target& target, const fs::path& source,
                                          const fs::path& object) {
  const char* chosen = std::getenv("CC");
  // Contraction is where C leaves to the compiler what kernel IR defines; errno is observed by nobody. The text itself defines overflow of signed numbers, and
  // says where memory changes its type, since others compile it too (export_c). Not -fno-trapping-math: gcc then takes a float of an integer of x for trunc(x), which is -0 for -0.5.
  // -O3: at -O2 some compilers leave loops of unknown length unvectorised.
  std::vector<std::string> command = {chosen != nullptr && *chosen != '\0' ? chosen : "cc",
                                      "-std=gnu11",
                                      "-O3",
                                      "-fPIC",
                                      "-shared",
                                      "-w",
                                      "-ffp-contract=off",
                                      "-fno-math-errno"};
#if defined(__x86_64__)
  command.push_back(std::string("-march=x86-64-v") + (kernel::has_wide_vectors(target) ? "4"
                                                      : target.name == "avx2"          ? "3"
                                                                                       : "2"));
#endif
  if (kernel::has_wide_vectors(target)) command.push_back("-mprefer-vector-width=512");
  for (const std::string& last : {source.string(), std::string("-o"), object.string(), std::string("-lm")}) {
    command.push_back(last);
  }
  return command;
}

class SharedObjectKernel : public CompiledKernel {
 public:
  explicit SharedObjectKernel(const fs::path& object) : handle_(dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    HOTLOOP_CHECK(handle_ != nullptr, std::string("the compiled kernel does not load: ") + dlerror());
    code_bytes = static_cast<std::size_t>(fs::file_size(object));
    // POSIX makes a pointer from dlsym a pointer to a function.
    function_ = reinterpret_cast<KernelFunction>(dlsym(handle_, "hotloop_kernel"));
    HOTLOOP_CHECK(function_ != nullptr, "the compiled kernel has no entry point");
  }
  ~SharedObjectKernel() override { dlclose(handle_); }
  KernelFunction function() const override { return function_; }

 private:
  void* handle_;
  KernelFunction function_ = nullptr;
};

}  // namespace

std::unique_ptr<CompiledKernel> compile_c(const kernel::Program& program, const BackendOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = render::render(program, render::plain_c());

  const PrivateDirectory directory;
  const fs::path source = directory / "kernel.c", object = directory / "kernel.so", log = directory / "log";
  std::ofstream out(source);
  out << text;
  out.close();
  if (!out)
    throw UserError("backend c", "the folder for temporary files must be writable", source.string(),
                    "free some space, or set TMPDIR to another folder");
  const std::vector<std::string> command = compiler_command(program.target, source, object);
  const CommandResult result = run_command(command, log);
  using enum CommandResult::End;
  if (result.end == NotStarted)
    throw UserError("backend c", "needs a C compiler", "no program \"" + command[0] + "\"",
                    "install gcc or clang, set CC to one, or use backend=\"llvm\"");
  if (result.end == Killed)
    throw UserError("backend c", "the C compiler must be left to end",
                    command[0] + ", ended by signal " + std::to_string(result.number),
                    "more memory, or backend=\"llvm\"");
  // Where nobody knows how it ended, there is an object or not.
  const bool compiled = result.end == Exited ? result.number == 0 : fs::exists(object);
  HOTLOOP_CHECK(compiled, "the rendered C does not compile: " + read_text(log).substr(0, 2000));

  auto kernel = std::make_unique<SharedObjectKernel>(object);
  kernel->compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (options.keep_source) kernel->source = text;
  return kernel;
}

}  // namespace hotloop
