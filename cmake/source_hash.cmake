# Hashes of sources for the keys of the cache on disk: an entry that other sources made is not found. Comments count, too; the build they
# come from does not.
#   source_hash   of those that turn kernel IR into machine code, and of the headers that they include, themselves or through others, with the sources of
#                 these headers: constants come from there, too
#   program_hash  of all that have a part in what becomes of a graph, which are those of the library
#   cmake -D ROOT=<repository> -D OUTPUT=<file> -P source_hash.cmake
# writes OUTPUT.
cmake_minimum_required(VERSION 3.25)

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

# Adds to the list what its files include of the repository's own, and what that includes; and the source beside a header.
function(add_included list)
  set(all ${${list}})
  set(open ${all})
  while(open)
    list(POP_FRONT open source)
    get_filename_component(folder ${source} DIRECTORY)
    file(STRINGS ${ROOT}/${source} lines REGEX "^#include \"")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" name "${line}")
      foreach(header ${folder}/${name} src/${name} include/${name})
        if(NOT EXISTS ${ROOT}/${header})
          continue()
        endif()
        if(NOT header IN_LIST all)
          list(APPEND all ${header})
          list(APPEND open ${header})
          string(REGEX REPLACE "\\.h$" ".cpp" beside ${header})
          if(EXISTS ${ROOT}/${beside} AND NOT beside IN_LIST all)
            list(APPEND all ${beside})
          endif()
        endif()
        break()
      endforeach()
    endforeach()
  endwhile()
  set(${list} ${all} PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE code RELATIVE ${ROOT} ${ROOT}/src/backends/llvm/*.h ${ROOT}/src/backends/llvm/*.cpp
     ${ROOT}/src/schedule/*.h ${ROOT}/src/schedule/*.cpp)
file(GLOB headers RELATIVE ${ROOT} ${ROOT}/src/backends/*.h)
list(APPEND code ${headers})
list(REMOVE_DUPLICATES code)
add_included(code)
hash_sources(source_hash ${code})
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
