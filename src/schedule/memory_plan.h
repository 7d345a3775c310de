// Static memory plan: offsets of Shared and Worker buffers from the ranges of statements in which they live.
#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop {

// Sets Buffer::offset and the arena sizes. Buffers whose lives do not overlap may share memory.
void plan_memory(kernel::Program& program);

}  // namespace hotloop
