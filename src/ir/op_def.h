// OpDef: everything the system knows about one primitive op, gathered in one place by src/ops/<op>.cpp.
#pragma once

#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "ir/scalar.h"

namespace hotloop::ir {

// How the scheduler treats an op. The set is closed: a new elementwise op needs no new kind.
enum class OpKind {
  Input, Constant, Iota, RandomBits,
  Elementwise,                                                             // one scalar result per point
  Reshape, Transpose, Broadcast, Slice, Pad, Concat, Reverse, Windows,     // movement: a change of index
  Gather, DynamicSlice,                                                    // indirect reads
  ScatterAdd, DynamicUpdate,                                               // indirect writes
  Reduce, ArgMax, Dot,
  Extent,                                                                  // run-time size of an axis
  StopGradient, Loop, Call,
};

struct InferContext {
  std::span<const ValueType> operands;
  const Attrs& attrs;
  std::span<const std::shared_ptr<const Graph>> regions;
  std::string_view op_name;
};

struct EvalContext {
  const Node& node;
  std::span<const Array> operands;
  // Evaluates a region on arrays.
  const std::function<std::vector<Array>(const Graph&, std::span<const Array>)>& call;
};

// Rules below append to the current graph. `node` belongs to another graph: use its attrs, regions and types only;
// operands come as values of the current graph.
struct JvpContext {
  const Node& node;
  std::span<const Value> primals;   // of each operand
  std::span<const Value> outputs;   // primal results, already computed
  std::span<const Value> tangents;  // of each operand; undefined = zero (always so for integers and bool)
};

struct TransposeContext {
  const Node& node;
  std::span<const Value> operands;    // defined for the operands that are constants of the linear map, else undefined
  std::span<const Value> cotangents;  // of each result; undefined = zero
};

// A value with, if `batched`, one more leading axis.
struct Batched {
  Value value;
  bool batched = false;
};

struct BatchContext {
  const Node& node;
  std::span<const Batched> operands;  // at least one is batched
  std::int64_t size;                  // extent of the batch axis
};

// One instance of an op for the property tests.
struct Sample {
  std::vector<Array> operands;
  Attrs attrs;
  std::vector<std::shared_ptr<const Graph>> regions;
};
using Rng = std::mt19937_64;

// How elements go along an axis of an operand into the result.
enum class AxisUse {
  Same,       // element i of the result's axis needs element i of this one, and no other of the operand
  Reordered,  // the same axis, its elements in other places
  Summed,     // each element of the result is a sum over it
  Mixed,      // any element may go anywhere
};
// One axis of an operand and where it goes. An axis that is split or merged has several links, one that nothing is read along none.
struct AxisLink {
  int operand;
  int axis;  // -1: the operand's values say where along `to` something goes
  int to;    // axis of the result; -1: none; of a sum, the result's rank + n, equal for axes that are summed over together
  AxisUse use = AxisUse::Same;
  bool operator==(const AxisLink&) const = default;
};

struct OpDef {
  std::string name;
  std::string summary;  // one line for the docs
  OpKind kind = OpKind::Elementwise;
  ScalarOp scalar = ScalarOp::None;  // of an elementwise op
  int num_operands = -1;             // -1: any
  bool commutative = false;
  // Relative cost of one element: 1 for an add, about 10 for a division, 20 for a transcendental function.
  double cost_per_element = 1;

  // Shape and dtype rule.
  std::function<std::vector<ValueType>(const InferContext&)> infer;
  // The definition of the op's meaning.
  std::function<std::vector<Array>(const EvalContext&)> eval;
  // How axes of the operands run into those of the result, for all that cuts arrays or follows an axis (ir/axis_links.h). Absent: no
  // operand, or a region that tells.
  std::function<std::vector<AxisLink>(const Node&)> axes;
  // The attribute that holds the result's extents, or its elements; where an operand's axis is taken from the first element on, its end.
  std::string extents;
  // Tangent of each result (undefined = zero). Absent: the op has zero derivative everywhere.
  std::function<std::vector<Value>(const JvpContext&)> jvp;
  // The same for ops with regions, whose derivative computes the results along the way: (results, tangents); `outputs` of the
  // context is empty.
  std::function<std::pair<std::vector<Value>, std::vector<Value>>(const JvpContext&)> jvp_with_primal;
  // Cotangent of each operand (undefined for constants). Absent: the op is not linear in anything.
  std::function<std::vector<Value>(const TransposeContext&)> transpose;
  // Results with the batch axis leading.
  std::function<std::vector<Batched>(const BatchContext&)> batch;
  // Floating-point operations of one execution. Absent: cost_per_element for each element of the first result.
  std::function<double(const Node&)> flops;
  // Instances to test, with float operands of the given dtype; inputs keep clear of kinks.
  std::function<std::vector<Sample>(Rng&, DType)> samples;
};

// All ops, by name. The list is generated from the files of src/ops.
std::span<const OpDef> all_ops();
const OpDef& op(std::string_view name);       // UserError with the nearest name if there is none
const OpDef* find_op(std::string_view name);  // nullptr if there is none

inline bool is(const Node& node, OpKind kind) { return node.op->kind == kind; }

// The attribute of a call that holds its derivative rule, a LazyGraph; absent where the body is differentiated.
inline constexpr const char* jvp_rule_attr = "jvp";
// A call without a rule of its own, which results and operands would have to fit: nothing but its body.
inline bool is_plain_call(const Node& node) {
  return is(node, OpKind::Call) && node.regions.size() == 1 && !node.attrs.has(jvp_rule_attr);
}
// Leading axes that a gather's or scatter_add's array and indices share: each of their elements has indices of its own.
int num_lane_axes(const Attrs& attrs);
double estimate_flops(const Node& node);  // regions of a loop count `length` times

// Evaluates `graph` by each op's own definition: the oracle.
std::vector<Array> evaluate(const Graph& graph, std::span<const Array> inputs);

// Throws InternalError unless the graph obeys the rules: topological order, types as inferred, closed regions.
void verify(const Graph& graph);

// Text form of a graph and back; parse(print(g)) prints the same.
std::string print(const Graph& graph);
// What the graph computes, without the derivative rules of its calls, which printing would trace.
std::string print_without_rules(const Graph& graph);
std::shared_ptr<Graph> parse(std::string_view text);

}  // namespace hotloop::ir
