// Derivatives and batching: functions of graphs that give graphs, closed under composition and through loops.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop {

// All of these work on traced functions: the result may be traced, called inside another trace, or transformed again.
using Function = TracedFunction;

// Outputs and output tangents of fn at `primals` along `tangents` (undefined = zero; an output tangent may be undefined).
std::pair<std::vector<Value>, std::vector<Value>> jvp(const Function& fn, std::span<const Value> primals,
                                                      std::span<const Value> tangents);
// Outputs of fn and its pullback: cotangents of the outputs -> cotangents of the primals (zeros, never undefined).
std::pair<std::vector<Value>, Function> vjp(const Function& fn, std::span<const Value> primals);
// Outputs of fn and its linear map: tangents of the primals -> tangents of the outputs, primal work shared.
std::pair<std::vector<Value>, Function> linearize(const Function& fn, std::span<const Value> primals);
// fn's first output must be a scalar; the rest is passed through. Result: outputs of fn, then d output[0] / d input[i] for
// each i in `argnums`.
Function value_and_grad(const Function& fn, std::vector<int> argnums);
Function grad(const Function& fn, std::vector<int> argnums);
// fn applied to each element along axis in_axes[i] of input i (-1: the same value for all); outputs batched along axis 0.
Function vmap(const Function& fn, std::vector<int> in_axes);

// The same on finished graphs; `wanted` marks inputs with a tangent.
// jvp graph: inputs (primals..., tangents of the wanted...), outputs (outputs..., tangents of all float outputs...).
std::shared_ptr<Graph> jvp_graph(const Graph& graph, const std::vector<bool>& wanted);
// Inputs flagged in `batched` gain a leading axis of extent `size`; all outputs have it.
std::shared_ptr<Graph> vmap_graph(const Graph& graph, const std::vector<bool>& batched, std::int64_t size);

}  // namespace hotloop
