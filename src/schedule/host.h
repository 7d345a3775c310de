// What this machine can run.
#pragma once

#include <cstdint>
#include <string>

namespace hotloop::kernel {

// Whether this machine has the instructions of the target of that name. For "amx" the process asks the system for its registers, once.
bool host_runs(const std::string& target);
// Whether it multiplies pairs of bfloat16 in one instruction (AVX512-BF16) and gains by that: Intel's processors take four times as long for it as for a multiplication of
// f32 (Granite Rapids, two cycles).
bool host_multiplies_pairs();
// Whether its instructions of 512 bits are two halves, one after the other (AMD's Zen 4).
bool host_halves_vectors();
// Whether its third cache is beside the cores that share it (AMD), rather than spread over a mesh with all of them.
bool host_has_near_l3();
// Bytes of a core's first data cache; 0 where the system does not say.
std::int64_t host_l1_bytes();
// The same of its second cache.
std::int64_t host_l2_bytes();

}  // namespace hotloop::kernel
