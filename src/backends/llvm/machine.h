// The machine that code is generated for, and the passes that turn a module into an object file.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "schedule/kernel_ir.h"

namespace hotloop::codegen {

struct MachineSpec {
  std::string triple, cpu, features;
  int register_bytes = 64;
};

// CPU and features for a target: those of this machine where it runs the target in full, else what every processor with such vectors has (a
// level of the x86-64 psABI, AArch64 with NEON). The triple is another than this process's where the target is for other machines.
MachineSpec machine_for(const kernel::Target& target);
std::unique_ptr<llvm::TargetMachine> make_target_machine(const MachineSpec& spec);
// Whether it has AVX512-BF16, on a processor that gains by it.
bool multiplies_pairs(const llvm::TargetMachine& machine);
// Whether it has AMX, and the process may use it.
bool multiplies_blocks(const llvm::TargetMachine& machine);
// Makes a new module one of this machine's.
void set_target(llvm::Module& module, const llvm::TargetMachine& machine);
// In a small module, a function that is called from one place becomes part of its caller, so that what one statement computes goes on to the
// next in registers. A step of a small cell waits for each store that is read again at once; programs of many statements do not, and would
// take longer to compile.
void merge_small_functions(llvm::Module& module, llvm::TargetMachine& machine);
// Verifies, optimises and compiles a module. Bytes of an ELF object.
std::string compile_module(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace hotloop::codegen
