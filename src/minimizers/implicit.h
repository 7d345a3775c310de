// A minimum as a function of what its objective depends on: the derivative is that of the equation grad f(x, rest) = 0, by the implicit
// function theorem, dx = - H^-1 d(grad f)/d rest, where H is the Hessian in x. How the minimum was found does not matter to it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hotloop/graph.h"
#include "ir/region.h"
#include "minimizers/flat.h"

namespace hotloop::minimizers {

// The results of `body`, traced on the leaves of `params` and then the captures of `objective`, whose graph takes the same and gives a
// scalar: (x, value, ...), x (n,) in flat.dtype(). The derivative of x is the implicit one, that of value is the objective's in the
// captures (where x is a minimum it does not change to first order), the other results have none. So
// for derivatives of any order.
std::vector<Value> differentiable_minimum(const std::string& name, const Flat& flat, const ir::Region& objective,
                                          const Tree<Value>& params, const TracedFunction& body);

}  // namespace hotloop::minimizers
