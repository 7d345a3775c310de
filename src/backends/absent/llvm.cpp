// Instead of src/backends/llvm in a portable build (HOTLOOP_PORTABLE).
#include "backends/backend.h"
#include "hotloop/error.h"

namespace hotloop {

std::unique_ptr<CompiledKernel> compile_llvm(const kernel::Program&, const BackendOptions&) {
  throw UserError("backend llvm", "needs a build with LLVM", "one made with HOTLOOP_PORTABLE=ON",
                  "backend \"c\", which calls a C compiler, or \"interp\"");
}

std::unique_ptr<CompiledKernel> load_llvm(const std::string&, const BackendOptions&) { return nullptr; }
std::string llvm_origin(const kernel::Target&) { return {}; }

bool can_compile_objects() { return false; }

std::string compile_object(std::span<const ObjectKernel>, std::span<const ObjectData>, const std::string&) {
  throw InternalError(__FILE__, __LINE__, "objects need a build with LLVM");
}

}  // namespace hotloop
