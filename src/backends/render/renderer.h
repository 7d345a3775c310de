// Prints a Program in a language of the C family.
#pragma once

#include <cstdint>
#include <string>

#include "backends/render/dialect.h"
#include "schedule/kernel_ir.h"

namespace hotloop::render {

// An integer as a literal of C.
std::string number(std::int64_t value);

std::string render(const kernel::Program& program, const Dialect& dialect);

}  // namespace hotloop::render
