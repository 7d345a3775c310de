// Instead of src/backends/llvm in a portable build (HOTLOOP_PORTABLE).
#include "backends/backend.h"
#include "hotloop/error.h"

namespace hotloop {

std::unique_ptr<CompiledKernel> compile_llvm(const kernel::Program&, const BackendOptions&) {
  throw UserError("backend llvm", "needs a build with LLVM", "one made with HOTLOOP_PORTABLE=ON",
                  "backend \"c\", which calls a C compiler, or \"interp\"");
}

}  // namespace hotloop
