# Plug-in folders: the list of files becomes a generated table, so that adding a file is the whole change.
#   hotloop_registry(FOLDER HEADER NAMESPACE TYPE FUNCTION PREFIX OUTPUT_VAR)
# writes <build>/generated/<folder>_registry.cpp with
#   std::vector<TYPE> FUNCTION() { return {&PREFIX<file>, ...}; }
function(hotloop_registry folder header namespace type function prefix output)
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  list(SORT sources)
  set(declarations "")
  set(entries "")
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    string(APPEND declarations "std::remove_pointer_t<${type}> ${prefix}${stem};\n")
    string(APPEND entries "      &${prefix}${stem},\n")
  endforeach()
  string(REPLACE "/" "_" flat ${folder})
  set(path ${PROJECT_BINARY_DIR}/generated/${flat}_registry.cpp)
  file(CONFIGURE OUTPUT ${path} CONTENT
"// Generated from the files of ${folder}; see cmake/registry.cmake.
#include <type_traits>
#include \"${header}\"

namespace ${namespace} {

${declarations}
std::vector<${type}> ${function}() {
  return {
${entries}  };
}

}  // namespace ${namespace}
" @ONLY)
  set(${output} ${path} PARENT_SCOPE)
endfunction()
