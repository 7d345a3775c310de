// The flag that running kernels poll once a block and once an outer iteration.
#pragma once

#include <cstdint>

namespace hotloop::runtime {

const std::int32_t* cancel_flag();  // for KernelContext::cancel
bool cancel_requested();

}  // namespace hotloop::runtime
