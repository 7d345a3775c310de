// The recording side of KernelHistory.
#pragma once

#include "hotloop/jit.h"

namespace hotloop::runtime {

bool history_is_recording();  // one relaxed load
void record_launch(const KernelRecord& record);

}  // namespace hotloop::runtime
