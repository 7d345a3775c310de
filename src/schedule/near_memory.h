// What a worker's memory is used for, for devices with a little of it that is near.
#pragma once

#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// How often an element of each buffer is read or written in a run of one tile, about: loops count, and of what a statement touches in part each element
// counts for that part.
std::vector<double> uses_of_an_element(const Program& program);

}  // namespace hotloop::kernel
