// Appends nodes to a graph under construction in their simplest form: what simplify() applies to every node, and what
// other passes use to write new ones.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/uniform_value.h"
#include "passes/pass.h"

namespace hotloop::passes {

using Axes = std::vector<std::int64_t>;

class Builder {
 public:
  Builder(Graph& graph, const PassOptions& options) : graph_(graph), options_(options) {}

  Graph& graph() { return graph_; }
  const PassOptions& options() const { return options_; }
  // Generation of the nodes appended from now on.
  void set_generation(int generation) { generation_ = generation; }
  int num_rewrites() const { return num_rewrites_; }

  // The value of `op` on the operands: an existing value if a rule applies, else of a new node.
  Value make(const ir::OpDef& op, std::vector<Value> operands, Attrs attrs = {});
  Value make(std::string_view op, std::vector<Value> operands, Attrs attrs = {});

  Value scalar(double value, DType dtype);
  Value full(double value, const ValueType& type) { return broadcast(scalar(value, type.dtype), type.shape, {}); }
  Value add(Value a, Value b) { return make("add", {a, b}); }
  Value sub(Value a, Value b) { return make("sub", {a, b}); }
  Value mul(Value a, Value b) { return make("mul", {a, b}); }
  Value neg(Value x) { return make("neg", {x}); }
  Value reshape(Value x, const Shape& shape) { return make("reshape", {x}, {{"shape", shape.vec()}}); }
  Value transpose(Value x, const Axes& permutation) { return make("transpose", {x}, {{"permutation", permutation}}); }
  Value broadcast(Value x, const Shape& shape, const Axes& axes) {
    return make("broadcast", {x}, {{"shape", shape.vec()}, {"axes", axes}});
  }
  Value slice(Value x, const Axes& start, const Axes& stop, const Axes& step) {
    return make("slice", {x}, {{"start", start}, {"stop", stop}, {"step", step}});
  }
  // Elements [start, stop) along one axis.
  Value narrow(Value x, int axis, std::int64_t start, std::int64_t stop);
  Value concat(std::vector<Value> parts, int axis) {
    return make("concat", std::move(parts), {{"axis", static_cast<std::int64_t>(axis)}});
  }
  Value reduce_sum(Value x, const Axes& axes) { return make("reduce_sum", {x}, {{"axes", axes}}); }
  Value dot(Value lhs, Value rhs, const Axes& lhs_contract, const Axes& rhs_contract, const Axes& lhs_batch = {},
            const Axes& rhs_batch = {}) {
    return make("dot", {lhs, rhs},
                {{"lhs_contract", lhs_contract},
                 {"rhs_contract", rhs_contract},
                 {"lhs_batch", lhs_batch},
                 {"rhs_batch", rhs_batch}});
  }

 private:
  Graph& graph_;
  const PassOptions& options_;
  int generation_ = 0;
  int num_rewrites_ = 0;
  int depth_ = 0;
};

// Questions rules ask about values.
inline Value operand(Value v, int i = 0) { return v.node->operands[static_cast<std::size_t>(i)]; }
inline bool is_kind(Value v, ir::OpKind kind) { return v.node->op->kind == kind; }
inline bool is_scalar_op(Value v, ir::ScalarOp op) {
  return v.node->op->scalar == op && is_kind(v, ir::OpKind::Elementwise);
}
inline bool is_named(Value v, std::string_view name) { return v.node->op->name == name; }
using ir::uniform_value;
inline bool is_number(Value v, double number) { return uniform_value(v) == number; }
Axes zeros(int n);
Axes ones(int n);
// Whether a slice has step 1 and is full but along one axis, and that axis (the first, if it is full along all).
std::optional<int> sliced_axis(const Node& slice);
// The same for a pad by zeros, without interior.
std::optional<int> padded_axis(const Node& pad);

// Whether an addition must stay as it was written: a difference among its operands is how compensated sums are made,
// c + ((s - t) + x), and other groupings of the same terms lose what they are for (docs/decisions/0010).
bool keeps_grouping(const Node& add);

// Whether all numbers of v are 0, 1 or -1, as far as is known: one-hot numbers, masks and products of such.
bool is_of_units(Value v);
// The product of two repeats, as a unit tangent of a matrix is one of one-hot numbers for its rows and for its columns.
struct ProductOfRepeats {
  Value first, second;  // broadcast nodes
};
std::optional<ProductOfRepeats> product_of_repeats(Value v);
// Which of the factors leaves a dot with their product as that side: it does not depend on what is contracted, and without it the other
// factor repeats along a free axis. Its numbers are units: without another, dot(b, x) might be infinite where dot(a * b, x) is not. -1 if neither does.
int leaves_dot(const ProductOfRepeats& product, const Axes& contract, const Axes& batch);

// Rules, by family; an undefined value when none applies.
Value simplify_arithmetic(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs);
Value simplify_movement(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs);
Value simplify_places(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs);
// x + part, where part is zero but at a few computed places: only these are touched. Undefined where it is something else.
Value add_where_it_lies(Builder& b, Value x, Value part);
Value simplify_contraction(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs);

}  // namespace hotloop::passes
