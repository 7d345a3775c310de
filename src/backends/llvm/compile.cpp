// compile_llvm: kernel IR to a function, through an object file that ORC links and a disk cache keeps.
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/llvm/clocks.h"
#include "backends/llvm/code.h"
#include "backends/llvm/machine.h"
#include "backends/llvm/parallel.h"
#include "backends/object_cache.h"
#include "core/fork.h"
#include "hotloop/error.h"

namespace hotloop {
namespace {

template <class T> T checked(llvm::Expected<T> value, const char* what) {
  if (!value) throw InternalError(__FILE__, __LINE__, std::string(what) + ": " + llvm::toString(value.takeError()));
  return std::move(*value);
}
void checked(llvm::Error error, const char* what) {
  if (error) throw InternalError(__FILE__, __LINE__, std::string(what) + ": " + llvm::toString(std::move(error)));
}

// One linker a process; each kernel is a library of its own. Never destroyed: kernels may outlive static objects.
llvm::orc::LLJIT& linker() {
  static llvm::orc::LLJIT* jit = [] {
    auto machine = llvm::orc::JITTargetMachineBuilder(llvm::Triple(llvm::sys::getProcessTriple()));
    llvm::orc::LLJITBuilder builder;
    builder.setJITTargetMachineBuilder(std::move(machine));
    return checked(builder.create(), "the linker cannot start").release();
  }();
  return *jit;
}

// Made and destroyed inside a NoFork, as all that calls LLVM is.
class LinkedKernel final : public CompiledKernel {
 public:
  explicit LinkedKernel(const std::vector<std::string>& objects) {
    static std::atomic<unsigned> serial{0};
    auto library = linker().createJITDylib("kernel." + std::to_string(serial++));
    checked(library.takeError(), "no library for a kernel");
    library_ = &*library;
    for (const std::string& object : objects) {
      checked(linker().addObjectFile(*library_, llvm::MemoryBuffer::getMemBufferCopy(object, "kernel")),
              "an object was refused");
      const auto file = checked(llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel")),
                                "an object cannot be read");
      for (const llvm::object::SectionRef& section : file->sections()) {
        if (section.isText()) code_bytes += section.getSize();
      }
    }
    function_ = checked(linker().lookup(*library_, "hotloop_kernel"), "a kernel did not link").toPtr<KernelFunction>();
    num_objects = static_cast<int>(objects.size());
  }
  void has_clocks(std::vector<ClockedStatement> statements) {
    clocked = std::move(statements);
    const auto table = checked(linker().lookup(*library_, codegen::Clocks::symbol), "the clocks of a kernel");
    clocks = table.toPtr<const StatementClock*>();
  }
  ~LinkedKernel() override {
    const NoFork no_fork;
    llvm::consumeError(linker().getExecutionSession().removeJITDylib(*library_));
  }
  KernelFunction function() const override { return function_; }

 private:
  llvm::orc::JITDylib* library_ = nullptr;
  KernelFunction function_ = nullptr;
};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::string text_of(const codegen::MachineSpec& spec) {
  return std::string(LLVM_VERSION_STRING) + "\n" + spec.cpu + "\n" + spec.features;
}

std::string cache_key(const kernel::Program& program, const codegen::MachineSpec& spec, bool emulates_blocks) {
  std::string key = std::string(codegen::source_hash) + "\n" + text_of(spec) +
                    (emulates_blocks ? "\nemulated\n" : "\n") + kernel::print(program);
  for (const kernel::Buffer& buffer : program.buffers) {  // the text form may abbreviate them
    if (buffer.data.defined()) key.append(static_cast<const char*>(buffer.data.raw()), buffer.data.bytes());
  }
  return key;
}

// Objects one after the other, behind a line of their sizes, as one entry of the cache.
std::string joined(const std::vector<std::string>& objects) {
  std::string sizes, all;
  for (const std::string& object : objects) {
    sizes += (sizes.empty() ? "" : " ") + std::to_string(object.size());
    all += object;
  }
  return sizes + "\n" + all;
}
std::vector<std::string> separated(const std::string& entry) {
  std::istringstream sizes(entry.substr(0, entry.find('\n')));
  std::vector<std::string> objects;
  std::size_t at = entry.find('\n') + 1;
  for (std::size_t size = 0; sizes >> size; at += size) objects.push_back(entry.substr(at, size));
  return objects;
}

}  // namespace

std::string llvm_origin(const kernel::Target& target) {
  return std::string(codegen::program_hash) + "\n" + text_of(codegen::machine_for(target));
}

std::unique_ptr<CompiledKernel> load_llvm(const std::string& cache_entry, const BackendOptions& options) {
  if (options.cache_dir.empty()) return nullptr;
  const auto start = std::chrono::steady_clock::now();
  const codegen::ObjectCache cache(options.cache_dir, options.cache_bytes);
  const auto entry = cache.find_named(cache_entry);
  if (!entry) return nullptr;
  const NoFork no_fork;
  auto kernel = std::make_unique<LinkedKernel>(separated(*entry));
  kernel->from_cache = true;
  kernel->cache_entry = cache_entry;
  kernel->compile_ms = ms_since(start);
  return kernel;
}

std::unique_ptr<CompiledKernel> compile_llvm(const kernel::Program& program, const BackendOptions& options) {
  const NoFork no_fork;
  const auto start = std::chrono::steady_clock::now();
  const codegen::MachineSpec spec = codegen::machine_for(program.target);
  const codegen::ObjectCache cache(options.cache_dir, options.cache_bytes);
  const bool cached = !options.cache_dir.empty() && !options.clocks;
  const std::string entry =
      cached ? codegen::ObjectCache::name_of(cache_key(program, spec, options.emulates_blocks)) : std::string();
  if (cached && !options.keep_source) {
    if (auto kernel = load_llvm(entry, options)) return kernel;
  }

  const std::unique_ptr<llvm::TargetMachine> machine = codegen::make_target_machine(spec);
  llvm::LLVMContext context;
  llvm::Module module(program.name, context);
  codegen::set_target(module, *machine);
  codegen::ModuleState state{
      module,
      program,
      spec.register_bytes,
      codegen::multiplies_pairs(*machine),
      program.target.multiplies_blocks && !options.emulates_blocks && codegen::multiplies_blocks(*machine),
      {},
      {}};
  std::optional<codegen::Clocks> clocks;
  if (options.clocks) state.clocks = &clocks.emplace(module);
  codegen::emit_program(state);
  std::vector<ClockedStatement> clocked;
  if (clocks) clocked = clocks->finish();
  codegen::merge_small_functions(module, *machine);
  std::string source;
  if (options.keep_source) {
    llvm::raw_string_ostream stream(source);
    module.print(stream, nullptr);
  }
  const auto objects = codegen::compile_module_parts(module, *machine, spec, options.compile_threads);
  auto kernel = std::make_unique<LinkedKernel>(objects);
  if (clocks) kernel->has_clocks(std::move(clocked));
  // An unwritable directory costs time, nothing else.
  if (cached && cache.insert_named(entry, joined(objects))) kernel->cache_entry = entry;
  kernel->source = std::move(source);
  kernel->compile_ms = ms_since(start);
  return kernel;
}

}  // namespace hotloop
