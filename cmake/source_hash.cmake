# Hashes of sources for the keys of the cache on disk: an entry that other sources made is not found. Comments count, too; the build they
# come from does not.
#   source_hash   of those that turn kernel IR into machine code
#   program_hash  of all that have a part in what becomes of a graph, which are those of the library
#   cmake -D ROOT=<repository> -D OUTPUT=<file> -P source_hash.cmake
# writes OUTPUT.
function(hash_sources variable)
  set(all "")
  list(SORT ARGN)
  foreach(source ${ARGN})
    file(SHA256 ${ROOT}/${source} hash)
    string(APPEND all "${source} ${hash}\n")
  endforeach()
  string(SHA256 hash "${all}")
  set(${variable} ${hash} PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE code RELATIVE ${ROOT} ${ROOT}/src/backends/llvm/*.h ${ROOT}/src/backends/llvm/*.cpp
     ${ROOT}/src/schedule/*.h ${ROOT}/src/schedule/*.cpp)
file(GLOB headers RELATIVE ${ROOT} ${ROOT}/src/backends/*.h)
hash_sources(source_hash ${code} ${headers})
file(GLOB_RECURSE library RELATIVE ${ROOT} ${ROOT}/src/*.h ${ROOT}/src/*.cpp ${ROOT}/include/*.h)
list(FILTER library EXCLUDE REGEX "^src/cli/")
hash_sources(program_hash ${library})
file(WRITE ${OUTPUT}
"// Generated; see cmake/source_hash.cmake.
#include \"backends/object_cache.h\"

namespace hotloop::codegen {

const char* const source_hash = \"${source_hash}\";
const char* const program_hash = \"${program_hash}\";

}  // namespace hotloop::codegen
")
