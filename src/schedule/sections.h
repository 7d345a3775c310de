// Work without a batch, or with too short a one, is shared by workers all the same: what does not depend on each other becomes sections
// that run at once (docs/decisions/0015).
#pragma once

#include <optional>
#include <string>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Cuts what one worker alone would run into sections, where so many workers gain by it as the cost model has it, or, for tests,
// wherever there are two. Takes out barriers that are not needed (join_phases) and lays out the memory (plan_memory).
void make_sections(Program& program, int num_workers, bool always = false);

// The rule that the sections break, if they do: what two of them share must be read only, or pass from one to the next by chunks.
std::optional<std::string> broken_rule(const Program& program, const Sections& sections);

}  // namespace hotloop::kernel
