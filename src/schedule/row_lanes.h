// Whether the rows of a tile fill the lanes of vectors (docs/decisions/0012), rather than the numbers of a row.
#pragma once

#include <span>

#include "schedule/context.h"

namespace hotloop {

// Loops that work on single numbers a row for the most part, or in which short rows meet these or are taken apart and put together: with the numbers of a row side
// by side most lanes would be empty there. Where everything is elementwise, rows that lie one after the other fill vectors as they are; and a dot of
// long rows reads these whole, as what finds them does. Weights that fill vectors are as fast either way, in a fraction of the instructions, unless rows stop one by one.
// But where more than half of the lanes would be empty (gates of three units, which are cut out of a product of twelve columns), it is theirs that counts.
// A layer before or behind the loops takes part where these are most of the work: tables that are passed over once are better in rows.
// Without loops, what is written out number by number, as the factors of small matrices are, has to be a third of all: each of these numbers would be
// read apart, where a dot takes a vector of them at once.
bool wants_lanes(const LoweringContext& context, std::span<const Node* const> nodes);

}  // namespace hotloop
