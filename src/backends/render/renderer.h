// Prints a Program in a language of the C family.
#pragma once

#include <string>

#include "backends/render/dialect.h"
#include "schedule/kernel_ir.h"

namespace hotloop::render {

std::string render(const kernel::Program& program, const Dialect& dialect);

}  // namespace hotloop::render
