// Derivatives that a program does not get by transposing what it computed: custom_vjp, and the op it is made of.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::ir {

// body(residuals..., x...) is linear in x; transpose(residuals..., cotangents of the results...) gives the cotangents of x, which is taken at its
// word. `operands` are the `num_residuals` residuals, of any type, then x, floats as the results.
std::vector<Value> linear_call(std::shared_ptr<const Graph> body, std::shared_ptr<const Graph> transpose,
                               std::span<const Value> operands, std::size_t num_residuals);

// The same of a map whose transpose alone is known, and need not be linear: reverse mode puts `transpose` there, to be differentiated as any other
// code, and forward mode is a UserError that begins with transpose's name.
std::vector<Value> reverse_call(std::shared_ptr<const Graph> transpose, std::span<const Value> operands,
                                std::size_t num_residuals);
bool is_reverse_only(const Node& node);
// One among the nodes of a graph and its regions; null if there is none.
const Node* find_reverse_call(const Graph& graph);
[[noreturn]] void refuse_forward_mode(const Node& node);

// Cotangents of the primals (undefined: zero) from primals, outputs and the cotangents of outputs (undefined for integers).
using Pullback = std::function<std::vector<Value>(std::span<const Value> primals, std::span<const Value> outputs,
                                                  std::span<const Value> cotangents)>;

// fn(primals), whose reverse derivative is `pullback`; its forward derivative is fn's. Both see nothing of the enclosing trace but
// their arguments. Derivatives of the gradient are those of what `pullback` computes.
std::vector<Value> custom_vjp(const std::string& name, const TracedFunction& fn, const Pullback& pullback,
                              std::span<const Value> primals);

}  // namespace hotloop::ir
