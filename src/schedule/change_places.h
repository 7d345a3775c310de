#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// A carry that a step reads at other points than it writes, as a stencil does, is computed elsewhere, and copied home when the step ends. Here the places
// change their roles instead: the body is written out two or three times, each time with the buffers that the last one left the carries in, until all are home.
//
//   for t < 100:                    for t < 50:
//     b[i] = f(a[i - 1], a[i])        b[i] = f(a[i - 1], a[i])
//     a[i] = b[i]                     a[i] = f(b[i - 1], b[i])
//
// Steps that are left over keep their copies. For loops with a fixed number of steps, of which nothing stops them, where copies go from whole buffers to
// whole buffers. On processors, where one worker does all of a loop; before the memory plan.
void change_places(Program& program);

}  // namespace hotloop::kernel
