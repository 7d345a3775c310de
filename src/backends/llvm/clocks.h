// Clocks: what a kernel needs to tell how long each of its statements takes (BackendOptions::clocks).
#pragma once

#include <llvm/IR/GlobalVariable.h>

#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "schedule/kernel_ir.h"

namespace hotloop::codegen {

class Code;
struct Frame;

// One clock goes on through the whole kernel, and is read after each statement that computes: what has passed since it was read last is that
// statement's, with the loops that lead to it. So all of the time is somebody's, and a statement costs one reading.
class Clocks {
 public:
  static constexpr const char* symbol = "hotloop_clocks";

  explicit Clocks(llvm::Module& module);
  // Where the kernel begins.
  void start(Code& code);
  // Behind these statements, of which some may compute nothing.
  void read(Code& code, const Frame& frame, std::span<const kernel::Stmt> statements);
  // The table that all of them write to, once the kernel is emitted.
  std::vector<ClockedStatement> finish();

 private:
  llvm::GlobalVariable* words(std::size_t count, const char* name);

  llvm::Module& module_;
  llvm::GlobalVariable* last_;   // when the clock was read last
  llvm::GlobalVariable* table_;  // stands for one whose size is not known yet
  std::vector<ClockedStatement> statements_;
};

}  // namespace hotloop::codegen
