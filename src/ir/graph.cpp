#include "hotloop/graph.h"

#include <algorithm>
#include <mutex>

#include "core/fork.h"
#include "core/memory.h"
#include "hotloop/error.h"
#include "ir/op_def.h"

namespace hotloop {
namespace {
thread_local Graph* g_current = nullptr;
}

namespace detail {

std::atomic<std::uint16_t> graph_serials[num_serial_places];

namespace {
std::atomic<std::uint32_t> g_next_place{0};
}

// A place is free while its number is even. Places are taken in turn, so that one is not used again soon; of a table in which a long row is taken
// the rest is not searched.
std::uint32_t take_serial() {
  for (int tries = 0; tries < 64; ++tries) {
    const std::uint32_t place = g_next_place.fetch_add(1, std::memory_order_relaxed) % num_serial_places;
    std::uint16_t number = graph_serials[place].load(std::memory_order_relaxed);
    const auto next = static_cast<std::uint16_t>(number + 1);
    if (number % 2 == 0 && graph_serials[place].compare_exchange_strong(number, next)) return place << 16 | next;
  }
  return 0;
}

void release_serial(std::uint32_t serial) {
  if (serial != 0) graph_serials[serial >> 16].fetch_add(1);
}

}  // namespace detail

const Attr& Attrs::at(const std::string& name) const {
  const auto it = entries_.find(name);
  HOTLOOP_CHECK(it != entries_.end(), "attribute '" + name + "' is absent");
  return it->second;
}

void Attrs::wrong_type(const std::string& name) {
  throw InternalError(__FILE__, __LINE__, "attribute '" + name + "' has another type");
}

void Value::refuse_undefined() {
  throw UserError("value", "every value must be defined", "Value(), which is none",
                  "constant(number, dtype), zeros_like(x), or what an operation gives");
}

void Value::refuse_gone() {
  throw UserError("graph", "a value may be used only in the trace that made it, or in a region inside it",
                  "a value of a trace that has ended", "pass it as an argument");
}

Value Graph::add_input(const ValueType& type, const std::string& name) {
  Node* node = append(ir::op("input"), {}, {{"dtype", type.dtype}, {"shape", type.shape.vec()}});
  inputs_.push_back({node, 0});
  input_names_.push_back(name);
  return node->result();
}

Node* Graph::append(const ir::OpDef& op, std::vector<Value> operands, Attrs attrs,
                    std::vector<std::shared_ptr<const Graph>> regions, int generation) {
  std::vector<ValueType> operand_types;
  operand_types.reserve(operands.size());
  for (Value& v : operands) {
    if (!v.defined()) throw UserError(op.name, "every operand must be a value", "an undefined value");
    if (v.graph() != this) v = capture(v);
    operand_types.push_back(v.type());
    v.serial = 0;
  }
  if (op.num_operands >= 0)
    HOTLOOP_CHECK(static_cast<int>(operands.size()) == op.num_operands, "operand count of " + op.name);
  auto node = std::make_unique<Node>();
  node->types = op.infer({operand_types, attrs, regions, op.name});
  // Every value of a graph comes by here: from now on its elements and bytes are counted without a check.
  for (const ValueType& type : node->types) check_num_elements(op.name, type);
  node->op = &op;
  node->graph = this;
  node->serial = serial_;
  node->id = static_cast<int>(nodes_.size());
  node->operands = std::move(operands);
  node->attrs = std::move(attrs);
  node->regions = std::move(regions);
  node->generation = generation;
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

void Graph::set_outputs(std::vector<Value> outputs) {
  outputs_ = std::move(outputs);
  for (Value& v : outputs_) v.serial = 0;
}

std::vector<ValueType> Graph::input_types() const {
  std::vector<ValueType> types;
  for (const Value& v : inputs_) types.push_back(v.type());
  return types;
}

std::vector<ValueType> Graph::output_types() const {
  std::vector<ValueType> types;
  for (const Value& v : outputs_) types.push_back(v.type());
  return types;
}

Value Graph::capture(Value outer) {
  if (outer.graph() == this) return outer;
  if (parent_ == nullptr)
    throw UserError("graph", "a value may be used only in the trace that made it, or in a region inside it",
                    "a value of graph '" + outer.graph()->name() + "' used in graph '" + name_ + "'",
                    "pass it as an argument");
  outer = parent_->capture(outer);
  const auto it = std::ranges::find(captures_, outer);
  if (it != captures_.end())
    return inputs_[inputs_.size() - captures_.size() + static_cast<std::size_t>(it - captures_.begin())];
  captures_.push_back({outer.node, outer.index});
  return add_input(outer.type());
}

std::string Graph::str() const { return ir::print(*this); }

TraceScope::TraceScope(Graph& graph, bool nested) : previous_(g_current) {
  if (nested) graph.parent_ = g_current;
  g_current = &graph;
}

TraceScope::~TraceScope() {
  if (g_current != nullptr) g_current->parent_ = nullptr;
  g_current = previous_;
}

Graph& current_graph() {
  if (g_current == nullptr)
    throw UserError("graph", "operations on values need a trace", "no trace in progress",
                    "call this inside a function given to trace(), jit() or a transform");
  return *g_current;
}

bool is_tracing() { return g_current != nullptr; }

std::shared_ptr<Graph> trace(const TracedFunction& fn, std::span<const ValueType> input_types,
                             const std::string& name) {
  auto graph = std::make_shared<Graph>(name);
  TraceScope scope(*graph);
  std::vector<Value> inputs;
  for (const ValueType& t : input_types) inputs.push_back(graph->add_input(t));
  std::vector<Value> outputs = fn(inputs);
  for (const Value& v : outputs)
    if (!v.defined() || v.graph() != graph.get())
      throw UserError("trace", "every output must be a value of the traced function", "an undefined or foreign value",
                      "return what is computed from the function's own inputs");
  graph->set_outputs(std::move(outputs));
  return graph;
}

LazyGraph::LazyGraph(TracedFunction fn, std::vector<ValueType> input_types, std::string name)
    : fn_(std::move(fn)), input_types_(std::move(input_types)), name_(std::move(name)) {}

LazyGraph::LazyGraph(std::shared_ptr<const Graph> graph) : is_traced_(true), graph_(std::move(graph)) {}

const std::shared_ptr<const Graph>& LazyGraph::get() const {
  if (is_traced_) return graph_;
  // The function may be Python's, which waits for the interpreter's lock: it runs and is let go of while nothing is locked here. Of threads that come
  // at the same time each traces it, and the first to end is the one.
  TracedFunction fn;
  {
    const std::scoped_lock lock(mutex_);
    if (is_traced_) return graph_;
    fn = fn_;
  }
  std::shared_ptr<const Graph> traced = trace(fn, input_types_, name_);
  TracedFunction done;
  const std::scoped_lock lock(mutex_);
  if (is_traced_) return graph_;
  const NoFork no_fork;
  graph_ = std::move(traced);
  done.swap(fn_);
  is_traced_ = true;
  return graph_;
}

std::vector<Value> inline_graph(const Graph& graph, std::span<const Value> arguments) {
  HOTLOOP_CHECK(arguments.size() == graph.inputs().size(), "inline_graph: one argument an input");
  Graph& target = current_graph();
  std::map<std::pair<int, int>, Value> mapped;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    HOTLOOP_CHECK(arguments[i].type() == graph.inputs()[i].type(), "inline_graph: argument type");
    mapped[{graph.inputs()[i].node->id, 0}] = target.capture(arguments[i]);
  }
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    std::vector<Value> operands;
    for (const Value& v : node->operands) operands.push_back(mapped.at({v.node->id, v.index}));
    Node* copy = target.append(*node->op, operands, node->attrs, node->regions, node->generation);
    for (int i = 0; i < static_cast<int>(copy->types.size()); ++i) mapped[{node->id, i}] = copy->result(i);
  }
  std::vector<Value> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back(mapped.at({v.node->id, v.index}));
  return outputs;
}

}  // namespace hotloop
