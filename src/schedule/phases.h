// Phases: the statements between two barriers. All workers meet after each, so that there should be few.
#pragma once

#include <optional>
#include <string>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Takes out barriers between what several workers do at once anyway (split maps and packs, sections of one round) and what one does (Singles, which become one),
// where neither touches what the other writes.
void join_phases(Program& program);

// Whether others may run beside it in a phase: a Single, a statement of which each worker has a share, or sections of one round.
bool may_run_beside_others(const Stmt& stmt);

// The rule that such statements of a block outside Grids, Singles and Sections break, if one does: where no barrier is between them, they must
// not share what one of them writes, unless one worker runs both; nor may they write what each worker reads on its own way, the condition of a
// loop or a Let, before all have met again. read_before: buffers that were read so just before the block, or -1.
std::optional<std::string> broken_phase(const Program& program, const Block& block, int read_before = -1);

}  // namespace hotloop::kernel
