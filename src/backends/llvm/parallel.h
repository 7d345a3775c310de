// A module compiled by several threads.
#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

#include "backends/llvm/machine.h"

namespace hotloop::codegen {

// As compile_module(), by up to `threads` threads: ELF objects, which are linked together. Functions are dealt out to them, whose number and contents depend
// on the module and on `threads` alone; the code of a function on neither. A small module is one object.
std::vector<std::string> compile_module_parts(llvm::Module& module, llvm::TargetMachine& machine,
                                              const MachineSpec& spec, int threads);

}  // namespace hotloop::codegen
