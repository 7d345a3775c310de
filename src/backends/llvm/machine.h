// The machine that code is generated for, and the passes that turn a module into an object file.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "schedule/kernel_ir.h"

namespace hotloop::codegen {

struct MachineSpec {
  std::string cpu, features;
  int register_bytes = 64;
};

// CPU and features for a target: those of this machine where it runs the target in full, else the psABI level.
MachineSpec machine_for(const kernel::Target& target);
std::unique_ptr<llvm::TargetMachine> make_target_machine(const MachineSpec& spec);
// Verifies, optimises and compiles a module. Bytes of an ELF object.
std::string compile_module(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace hotloop::codegen
