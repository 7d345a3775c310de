// Prints a Program in a language of the C family.
#pragma once

#include <cstdint>
#include <string>

#include "backends/render/dialect.h"
#include "schedule/kernel_ir.h"

namespace hotloop::render {

// An integer as a literal of C.
std::string number(std::int64_t value);
// An element of `data` as a literal for a static initialiser, where no function may be called: the same bits, but for those of a NaN.
std::string static_literal(const Dialect& dialect, const Array& data, std::int64_t element);

std::string render(const kernel::Program& program, const Dialect& dialect);

}  // namespace hotloop::render
