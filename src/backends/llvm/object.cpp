// compile_object: several programs, each for a target of its own, and what calls them, as one object file.
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/Constants.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "backends/backend.h"
#include "backends/llvm/code.h"
#include "backends/llvm/machine.h"
#include "core/fork.h"
#include "hotloop/error.h"

namespace hotloop {
namespace {

// A program as a module with one function to be seen. Each function says what it is compiled for, so that modules of several targets
// can become one.
std::unique_ptr<llvm::Module> kernel_module(const ObjectKernel& kernel, llvm::LLVMContext& context) {
  codegen::MachineSpec spec = codegen::machine_for(kernel.program->target);
  spec.cpu = kernel.cpu;
  spec.features = "";  // an object is for every processor of that kind, not for this machine's
  const std::unique_ptr<llvm::TargetMachine> machine = codegen::make_target_machine(spec);
  auto module = std::make_unique<llvm::Module>(kernel.symbol, context);
  codegen::set_target(*module, *machine);
  codegen::ModuleState state{
      *module, *kernel.program, spec.register_bytes, codegen::multiplies_pairs(*machine), false, {}, {}};
  codegen::emit_program(state);
  codegen::merge_small_functions(*module, *machine);
  for (llvm::Function& function : *module)
    if (!function.isDeclaration()) function.addFnAttr("target-cpu", kernel.cpu);
  module->getFunction("hotloop_kernel")->setName(kernel.symbol);
  return module;
}

void add_data(llvm::Module& module, const ObjectData& data) {
  std::string bytes(static_cast<std::size_t>(data.bytes), '\0');
  for (std::size_t i = 0; i < data.arrays.size(); ++i)
    std::memcpy(bytes.data() + data.offsets[i], data.arrays[i].raw(), data.arrays[i].bytes());
  auto* constant = llvm::ConstantDataArray::getString(module.getContext(), bytes, false);
  auto* global = new llvm::GlobalVariable(module, constant->getType(), true, llvm::GlobalValue::ExternalLinkage,
                                          constant, data.symbol);
  global->setAlignment(llvm::Align(kernel::vector_bytes));
}

}  // namespace

bool can_compile_objects() { return true; }

std::string compile_object(std::span<const ObjectKernel> kernels, std::span<const ObjectData> data,
                           const std::string& glue) {
  const NoFork no_fork;
  llvm::LLVMContext context;
  llvm::InitializeNativeTargetAsmParser();  // the glue may ask the processor what it can do
  codegen::MachineSpec spec = codegen::machine_for(kernels.front().program->target);
  spec.cpu = "generic";  // what every processor of the architecture runs
  spec.features = "";
  const std::unique_ptr<llvm::TargetMachine> machine = codegen::make_target_machine(spec);
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(glue, diagnostic, context);
  HOTLOOP_CHECK(module != nullptr, "glue of an export: " + diagnostic.getMessage().str());
  codegen::set_target(*module, *machine);
  llvm::Linker linker(*module);
  for (const ObjectKernel& kernel : kernels)
    HOTLOOP_CHECK(!linker.linkInModule(kernel_module(kernel, context)), "kernels of an export do not link");
  auto constants = std::make_unique<llvm::Module>("data", context);
  codegen::set_target(*constants, *machine);
  for (const ObjectData& block : data) add_data(*constants, block);
  HOTLOOP_CHECK(!linker.linkInModule(std::move(constants)), "data of an export do not link");
  for (const ObjectKernel& kernel : kernels)
    module->getFunction(kernel.symbol)->setLinkage(llvm::GlobalValue::InternalLinkage);
  for (const ObjectData& block : data)
    module->getNamedGlobal(block.symbol)->setLinkage(llvm::GlobalValue::InternalLinkage);
  return codegen::compile_module(*module, *machine);
}

}  // namespace hotloop
