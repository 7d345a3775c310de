#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// What an iteration of a loop reads for the last time makes room for what it writes then: the gradients of gates are computed into the tape that held
// the gates. The buffer that is read then lies within the one that is written, and is touched no more under its own number. Both are
// read, written and streamed through the caches once instead of twice.
//
// For buffers of a worker, or of all of them outside grids, whose indices tell all points apart (mixed radix), and where every other access to the
// old buffer can be written in the digits of the new one. Before the memory plan.
void overwrite_last_reads(Program& program);

}  // namespace hotloop::kernel
