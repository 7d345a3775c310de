// What a program in kernel IR consists of, for KernelHistory and explain().
#pragma once

#include "hotloop/jit.h"
#include "schedule/kernel_ir.h"

namespace hotloop::runtime {

KernelRecord structure_of(const kernel::Program& program);

}  // namespace hotloop::runtime
