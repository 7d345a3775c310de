#include "backends/llvm/machine.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <vector>

#include "core/cancel.h"
#include "hotloop/cancel.h"
#include "hotloop/error.h"
#include "schedule/host.h"

namespace hotloop::codegen {
namespace {

void run_on_functions(llvm::Module& module, llvm::TargetMachine& machine,
                      const std::function<void(llvm::FunctionPassManager&)>& add_passes) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::FunctionPassManager passes;
  add_passes(passes);
  for (llvm::Function& function : module) {
    leave_if_cancelled();
    if (!function.isDeclaration()) passes.run(function, functions);
  }
}

}  // namespace

MachineSpec machine_for(const kernel::Target& target) {
  // Here, since every compilation comes by, also one that finds its object in the cache and only links it.
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  const std::string process = llvm::sys::getProcessTriple();
  const bool is_arm = llvm::Triple(process).isAArch64();
  if (target.name == "neon") return {is_arm ? process : "aarch64-unknown-linux-gnu", "generic", "", 16};
  if (target.name == "portable" && is_arm) return {process, "generic", "", 16};
  const std::string x86 = is_arm ? "x86_64-unknown-linux-gnu" : process;
  if (target.name == "avx2") return {x86, "x86-64-v3", "", 32};
  if (target.name == "portable") return {x86, "x86-64-v2", "", 16};
  HOTLOOP_CHECK(kernel::has_wide_vectors(target), "the llvm backend knows amx, avx512, avx2, neon and portable");
  const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  for (const char* feature : {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "fma"}) {
    if (!host.lookup(feature)) return {x86, "x86-64-v4", "", 64};
  }
  std::vector<std::string> features;
  for (const auto& entry : host) features.push_back((entry.second ? "+" : "-") + entry.first().str());
  std::sort(features.begin(), features.end());
  std::string list;
  for (const std::string& feature : features) list += (list.empty() ? "" : ",") + feature;
  return {x86, llvm::sys::getHostCPUName().str(), list, 64};
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(const MachineSpec& spec) {
  if (llvm::Triple(spec.triple).getArch() != llvm::Triple(llvm::sys::getProcessTriple()).getArch()) {
    static std::once_flag once;
    std::call_once(once, [] {
      LLVMInitializeX86TargetInfo();
      LLVMInitializeX86Target();
      LLVMInitializeX86TargetMC();
      LLVMInitializeX86AsmPrinter();
      LLVMInitializeX86AsmParser();
      LLVMInitializeAArch64TargetInfo();
      LLVMInitializeAArch64Target();
      LLVMInitializeAArch64TargetMC();
      LLVMInitializeAArch64AsmPrinter();
      LLVMInitializeAArch64AsmParser();
    });
  }
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(spec.triple, error);
  HOTLOOP_CHECK(target != nullptr, "LLVM has no target for " + spec.triple + ": " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // an fma is where the kernel IR says so, and nowhere else
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(spec.triple, spec.cpu, spec.features, options, llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less, /*JIT=*/true));
  HOTLOOP_CHECK(machine != nullptr, "LLVM cannot generate code for " + spec.cpu);
  return machine;
}

bool multiplies_pairs(const llvm::TargetMachine& machine) {
  return machine.getTargetTriple().isX86() && machine.getMCSubtargetInfo()->checkFeatures("+avx512bf16") &&
         kernel::host_multiplies_pairs();
}

bool multiplies_blocks(const llvm::TargetMachine& machine) {
  return machine.getTargetTriple().isX86() && machine.getMCSubtargetInfo()->checkFeatures("+amx-bf16") &&
         kernel::host_runs("amx");
}

void set_target(llvm::Module& module, const llvm::TargetMachine& machine) {
  module.setTargetTriple(machine.getTargetTriple().str());
  module.setDataLayout(machine.createDataLayout());
}

void merge_small_functions(llvm::Module& module, llvm::TargetMachine& machine) {
  constexpr unsigned most_instructions = 2000;
  if (module.getInstructionCount() > most_instructions) return;
  std::vector<llvm::Function*> merged;
  for (llvm::Function& function : module) {
    if (function.isDeclaration() || !function.hasInternalLinkage() || !function.hasOneUse()) continue;
    auto* const call = llvm::dyn_cast<llvm::CallInst>(*function.user_begin());
    if (call == nullptr || call->getCalledFunction() != &function) continue;
    function.removeFnAttr(llvm::Attribute::NoInline);
    llvm::InlineFunctionInfo info;
    if (llvm::InlineFunction(*call, info).isSuccess()) merged.push_back(&function);
  }
  for (llvm::Function* function : merged) function->eraseFromParent();
  if (merged.empty()) return;
  // Blocks that follow each other become one; loads of what was stored before become the value stored.
  run_on_functions(module, machine, [](llvm::FunctionPassManager& passes) {
    passes.addPass(llvm::SimplifyCFGPass());
    passes.addPass(llvm::GVNPass(llvm::GVNOptions().setPRE(false).setLoadPRE(false)));
  });
}

namespace {

// Runs before the passes that make code of a function, and no exception may pass through LLVM: once cancelled, the functions that are
// left lose their bodies, so that it is soon done with them.
class CancelPass final : public llvm::FunctionPass {
 public:
  // `cancelled`: set when a body is gone.
  explicit CancelPass(bool& cancelled) : llvm::FunctionPass(id_), cancelled_(cancelled) {}
  llvm::StringRef getPassName() const override { return "hotloop cancel"; }
  bool runOnFunction(llvm::Function& function) override {
    cancelled_ = cancelled_ || cancel_requested();
    if (!cancelled_) return false;
    const auto linkage = function.getLinkage();
    function.deleteBody();
    function.setLinkage(linkage);
    llvm::IRBuilder<>(llvm::BasicBlock::Create(function.getContext(), "cancelled", &function)).CreateUnreachable();
    return true;
  }

 private:
  static inline char id_ = 0;
  bool& cancelled_;
};

// What addPassesToEmitFile() adds, with a CancelPass among the passes that make code of one function after the other: what stands before
// their first one runs on all functions before any is compiled.
bool add_codegen(llvm::legacy::PassManager& passes, llvm::LLVMTargetMachine& machine, llvm::raw_pwrite_stream& out,
                 bool& cancelled) {
  auto* const info = new llvm::MachineModuleInfoWrapperPass(&machine);
  llvm::TargetPassConfig* const config = machine.createPassConfig(passes);
  config->setDisableVerify(true);
  passes.add(config);
  passes.add(info);
  const std::unique_ptr<llvm::Pass> first(llvm::createExpandLargeDivRemPass());
  config->insertPass(first->getPassID(), new CancelPass(cancelled));
  if (config->addISelPasses()) return false;
  config->addMachinePasses();
  config->setInitialized();
  if (machine.addAsmPrinter(passes, out, nullptr, llvm::CodeGenFileType::ObjectFile, info->getMMI().getContext()))
    return false;
  passes.add(llvm::createFreeMachineFunctionPass());
  return true;
}

}  // namespace

std::string compile_module(llvm::Module& module, llvm::TargetMachine& machine) {
  std::string text;
  llvm::raw_string_ostream message(text);
  HOTLOOP_CHECK(!llvm::verifyModule(module, &message), "the llvm backend emitted a broken module: " + message.str());

  run_on_functions(module, machine, [](llvm::FunctionPassManager& passes) {
    passes.addPass(llvm::EarlyCSEPass());
    passes.addPass(llvm::SimplifyCFGPass());
  });

  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  bool cancelled = false;
  HOTLOOP_CHECK(add_codegen(passes, static_cast<llvm::LLVMTargetMachine&>(machine), stream, cancelled),
                "LLVM cannot write object files for this machine");
  passes.run(module);
  if (cancelled) throw Cancelled();
  return {object.begin(), object.end()};
}

}  // namespace hotloop::codegen
