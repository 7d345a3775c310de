// Whether modules of one's own may be run one step at a time.
#pragma once

#include <span>

#include "nn/own_modules.h"

namespace hotloop {

// Runs each module on a sequence and on its steps one after another, with its state; UserError for one that gives other numbers. What keeps something
// beside its state, or mixes steps without one, would go wrong in a stream without a word.
void check_own_steps(std::span<const nn::OwnModules::Call> calls);

}  // namespace hotloop
