// Values that are others with parts replaced, as dynamic_update and loops make them.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop {

// A dynamic_update that writes what is there where a mask holds: it stores only elsewhere, and reads nothing of what it replaces.
struct KeptPart {
  Value mask, otherwise;
};
std::optional<KeptPart> kept_part(const Node& update);

// The operand that v is with parts replaced: a dynamic_update's first, or what a loop's carry begins with.
std::optional<std::size_t> replaced_operand(Value v);

// What is read to compute the node; the operand that is replaced in place stands where it stood.
std::vector<Value> operands_read(const Node& node);

}  // namespace hotloop
