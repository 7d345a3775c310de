// Results that take over the memory of arguments.
#pragma once

#include <functional>
#include <span>

#include "schedule/kernel_ir.h"

namespace hotloop {

// Sets Program::in_place for those of the `donated` arguments that a result of the same type may be computed into: no worker reads an
// element of the argument after the first write to that element of the result. The result's buffer then takes the place of the
// argument's everywhere, so that a backend sees one memory, read and written. `may_share(argument, result)`: whether their extents
// are equal in every call, which types of the traced extents do not tell.
void take_over_arguments(kernel::Program& program, std::span<const int> donated,
                         const std::function<bool(int, int)>& may_share);

}  // namespace hotloop
