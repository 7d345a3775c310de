// The machine that a program runs on, as found, not as hoped.
#pragma once

#include <string>

#include "hotloop/jit.h"

namespace hotloop::cli {

std::string cpu_name();
// "avx512 (512-bit vectors)", what such programs are compiled for on the processor.
std::string target_name_of(const CompileOptions& options = {});
std::string cache_sizes();       // "L1d 48K, L1i 32K, L2 1024K, L3 32768K", as the system tells of core 0
std::string compiler_on_path();  // empty if there is none

}  // namespace hotloop::cli
