// The flag that says that calls and compilations are to end early. Running kernels poll it once a block and once an outer iteration,
// compilation between passes, levels of a schedule and functions.
#pragma once

#include <cstdint>

namespace hotloop {

const std::int32_t* cancel_flag();  // for KernelContext::cancel
bool cancel_requested();
void leave_if_cancelled();  // throws Cancelled

}  // namespace hotloop
