// Interpreters of graphs: each appends, for every node of a graph, what one rule of its OpDef gives, to the current
// graph. They are what jvp, vjp and vmap are made of, and what the rules of ops with regions call for their regions.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/op_def.h"

namespace hotloop::ir {

struct Dual {
  Value primal, tangent;  // tangent undefined: zero
};
// The outputs of `graph` and their tangents.
std::vector<Dual> push_forward(const Graph& graph, std::span<const Dual> inputs);

// The transpose of a graph that is linear in some inputs. `inputs`: the values of the others, undefined for those. The result
// is, for each input, `seeds[i]` (undefined = zero) plus its cotangent; undefined for inputs that are not linear.
std::vector<Value> pull_back(const Graph& graph, std::span<const Value> inputs, std::span<const Value> cotangents,
                             std::span<const Value> seeds = {});
// Flags the outputs that depend on a flagged input.
std::vector<bool> dependent_outputs(const Graph& graph, const std::vector<bool>& inputs);

std::vector<Batched> push_batch(const Graph& graph, std::span<const Batched> inputs, std::int64_t size);
// `value` with the batch axis in front whether or not it was batched.
Value materialize_batch(const Batched& value, std::int64_t size);

}  // namespace hotloop::ir
