// The generated list of op files: cmake/registry.cmake writes registry.cpp from the names in src/ops.
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace hotloop::ir {

// Each file src/ops/<name>.cpp defines `std::vector<OpDef> ops_<name>()`, the ops it holds.
using OpFile = std::vector<OpDef> (*)();
std::vector<OpFile> op_files();  // generated

}  // namespace hotloop::ir
