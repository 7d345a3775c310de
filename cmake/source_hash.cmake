# What stands for the sources that turn kernel IR into machine code, in the keys of the cache on disk: an entry that other sources made is
# not found. Comments count, too; the build they come from does not.
#   cmake -D ROOT=<repository> -D OUTPUT=<file> -P source_hash.cmake
# writes OUTPUT.
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/src/backends/llvm/*.h ${ROOT}/src/backends/llvm/*.cpp
     ${ROOT}/src/schedule/*.h ${ROOT}/src/schedule/*.cpp)
file(GLOB headers RELATIVE ${ROOT} ${ROOT}/src/backends/*.h)
list(APPEND sources ${headers})
list(SORT sources)
set(all "")
foreach(source ${sources})
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND all "${source} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
file(WRITE ${OUTPUT}
"// Generated; see cmake/source_hash.cmake.
#include \"backends/object_cache.h\"

namespace hotloop::codegen {

const char* const source_hash = \"${hash}\";

}  // namespace hotloop::codegen
")
