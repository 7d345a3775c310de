#include "backends/llvm/parallel.h"

#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/Support/MemoryBufferRef.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <functional>
#include <future>
#include <set>
#include <utility>

#include "core/cancel.h"
#include "hotloop/error.h"

namespace hotloop::codegen {
namespace {

using Names = std::set<std::string, std::less<>>;

// The functions of each part: the largest first, each goes to the part that has least so far.
std::vector<Names> divided(const llvm::Module& module, std::size_t num_parts) {
  std::vector<const llvm::Function*> functions;
  for (const llvm::Function& function : module)
    if (!function.isDeclaration()) functions.push_back(&function);
  std::ranges::stable_sort(functions, std::greater<>(), &llvm::Function::getInstructionCount);
  std::vector<std::pair<unsigned, Names>> parts(num_parts);
  for (const llvm::Function* function : functions) {
    auto& [instructions, names] = *std::ranges::min_element(parts, {}, [](const auto& part) { return part.first; });
    instructions += function->getInstructionCount();
    names.insert(function->getName().str());
  }
  std::vector<Names> result;
  for (auto& [instructions, names] : parts)
    if (!names.empty()) result.push_back(std::move(names));
  return result;
}

using Bytes = llvm::SmallVector<char, 0>;

// All functions as bitcode, which a context of another thread can read; data is only declared.
Bytes functions_as_bitcode(llvm::Module& module) {
  std::vector<std::pair<llvm::GlobalVariable*, llvm::Constant*>> data;
  for (llvm::GlobalVariable& variable : module.globals()) {
    if (variable.isDeclaration()) continue;
    data.emplace_back(&variable, variable.getInitializer());
    variable.setInitializer(nullptr);
  }
  Bytes bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::WriteBitcodeToFile(module, stream);
  for (const auto& [variable, value] : data) variable->setInitializer(value);
  return bytes;
}

// Others are only declared.
void keep_functions(llvm::Module& module, const Names& names) {
  for (llvm::Function& function : module)
    if (!function.isDeclaration() && !names.contains(function.getName())) function.deleteBody();
}

// The functions of one part, compiled in a context of its own.
std::string compile_part(const Bytes& bitcode, const Names& names, const MachineSpec& spec) {
  llvm::LLVMContext context;
  const auto checked = [](llvm::Error error) {
    HOTLOOP_CHECK(!error, "a part of a module: " + llvm::toString(std::move(error)));
  };
  auto module = llvm::getLazyBitcodeModule({{bitcode.data(), bitcode.size()}, "part"}, context);
  if (!module) checked(module.takeError());
  keep_functions(**module, names);
  checked((*module)->materializeAll());
  const std::unique_ptr<llvm::TargetMachine> machine = make_target_machine(spec);
  return compile_module(**module, *machine);
}

}  // namespace

std::vector<std::string> compile_module_parts(llvm::Module& module, llvm::TargetMachine& machine,
                                              const MachineSpec& spec, int threads) {
  // Smaller parts take longer to begin with than they save, and each thread's context takes memory.
  constexpr std::size_t fewest_instructions = 600, most_parts = 16;
  const std::size_t most = std::min<std::size_t>(module.getInstructionCount() / fewest_instructions, most_parts);
  if (threads < 2 || most < 2) return {compile_module(module, machine)};

  // Seen by the other objects, and nobody else: a kernel is a library of its own.
  for (llvm::GlobalValue& value : module.global_values())
    if (!value.isDeclaration()) value.setLinkage(llvm::GlobalValue::ExternalLinkage);
  const std::vector<Names> parts = divided(module, std::min(most, static_cast<std::size_t>(threads)));
  const Bytes bitcode = functions_as_bitcode(module);
  std::vector<std::future<std::string>> others;
  for (std::size_t i = 1; i < parts.size(); ++i)
    // Here, in the end, where the system has no thread left.
    others.push_back(std::async(std::launch::async | std::launch::deferred,
                                [&bitcode, &spec, &names = parts[i], &token = cancel_token()] {
                                  const CancelScope scope(token);
                                  return compile_part(bitcode, names, spec);
                                }));
  // The first one, and the data, here.
  keep_functions(module, parts[0]);
  std::vector<std::string> objects = {compile_module(module, machine)};
  for (std::future<std::string>& other : others) objects.push_back(other.get());
  return objects;
}

}  // namespace hotloop::codegen
