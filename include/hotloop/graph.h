// Graph: a program as SSA nodes. Value: one result of a node, and what user code computes with while it is traced.
//
// A Graph is a closed function: inputs, nodes in topological order, outputs. Nodes with regions (loop, call) own
// further closed graphs. While a graph is being traced it is the thread's current graph (TraceScope); an operation on
// values appends a node to it, and a value of an enclosing graph that is used inside a region is captured: it becomes
// an extra input of the region.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "hotloop/array.h"
#include "hotloop/forkable_mutex.h"

namespace hotloop {

class Graph;
class LazyGraph;
struct Node;
namespace ir {
struct OpDef;
}

namespace detail {

// Which graphs are there, by number: the upper half of a serial is a place in the table, the lower half, odd, what stands there while that graph
// lives. Two graphs have the same serial only with 2^31 others between them. 0: the table was full, nothing is known of the graph.
inline constexpr std::uint32_t num_serial_places = 1U << 16;
extern std::atomic<std::uint16_t> graph_serials[num_serial_places];
inline bool is_living(std::uint32_t serial) {
  return graph_serials[serial >> 16].load(std::memory_order_relaxed) == (serial & 0xffffU);
}
std::uint32_t take_serial();
void release_serial(std::uint32_t serial);

}  // namespace detail

// Handle to one result of a node; cheap to copy. A default-constructed Value is undefined, which transforms use for
// "symbolically zero"; its type(), and so all that needs one, is a UserError. So is that of a value whose graph is gone: one kept beyond its trace.
struct Value {
  Node* node = nullptr;
  int index = 0;
  std::uint32_t serial =
      0;  // of the graph; 0 inside graphs, whose values live as long as they do, and are not looked after

  bool defined() const { return node != nullptr; }
  // What a value holds is known when the program runs, not while it is traced: `if (less(a, b))` can't choose. cond() takes one of two
  // branches, select() one of two values for each element.
  explicit operator bool() const = delete;
  // Whether it is the same result of the same node. What values hold is compared by equal().
  bool operator==(const Value& other) const { return node == other.node && index == other.index; }
  const ValueType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return type().shape.rank(); }
  Graph* graph() const;

 private:
  void check() const {
    if (node == nullptr) refuse_undefined();
    if (serial != 0 && !detail::is_living(serial)) refuse_gone();
  }
  [[noreturn]] static void refuse_undefined();
  [[noreturn]] static void refuse_gone();
};
static_assert(sizeof(Value) == 16);

using TracedFunction = std::function<std::vector<Value>(std::span<const Value>)>;

using Attr = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, DType, Array,
                          std::shared_ptr<const LazyGraph>>;

// Named compile-time parameters of a node, in name order.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> entries) : entries_(entries) {}

  bool has(const std::string& name) const { return entries_.contains(name); }
  void set(const std::string& name, Attr value) { entries_[name] = std::move(value); }
  void erase(const std::string& name) { entries_.erase(name); }
  // The attribute `name`, of the given type; an absent or wrongly typed one is an InternalError.
  template <class T> const T& get(const std::string& name) const {
    const Attr& a = at(name);
    if (!std::holds_alternative<T>(a)) wrong_type(name);
    return std::get<T>(a);
  }
  std::int64_t integer(const std::string& name) const { return get<std::int64_t>(name); }
  const std::vector<std::int64_t>& integers(const std::string& name) const {
    return get<std::vector<std::int64_t>>(name);
  }
  bool flag(const std::string& name) const { return has(name) && get<bool>(name); }
  const std::map<std::string, Attr>& entries() const { return entries_; }

 private:
  const Attr& at(const std::string& name) const;
  [[noreturn]] static void wrong_type(const std::string& name);

  std::map<std::string, Attr> entries_;
};

struct Node {
  const ir::OpDef* op = nullptr;
  Graph* graph = nullptr;
  int id = 0;                // position in graph->nodes()
  std::uint32_t serial = 0;  // of the graph
  std::vector<Value> operands;
  std::vector<ValueType> types;  // one per result
  Attrs attrs;
  std::vector<std::shared_ptr<const Graph>> regions;
  int generation = 0;  // recomputed copies of a node differ here, so that CSE does not merge them back

  Value result(int index = 0) { return {this, index, serial}; }
};

class Graph {
 public:
  explicit Graph(std::string name = "main") : name_(std::move(name)), serial_(detail::take_serial()) {}
  ~Graph() { detail::release_serial(serial_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const std::string& name() const { return name_; }
  Value add_input(const ValueType& type, const std::string& name = "");
  // Appends a node; result types come from the op's rule, which throws UserError for operands it does not accept.
  Node* append(const ir::OpDef& op, std::vector<Value> operands, Attrs attrs = {},
               std::vector<std::shared_ptr<const Graph>> regions = {}, int generation = 0);
  void set_outputs(std::vector<Value> outputs);

  std::span<const std::unique_ptr<Node>> nodes() const { return nodes_; }
  const std::vector<Value>& inputs() const { return inputs_; }
  const std::vector<Value>& outputs() const { return outputs_; }
  const std::string& input_name(int index) const { return input_names_[static_cast<std::size_t>(index)]; }
  std::vector<ValueType> input_types() const;
  std::vector<ValueType> output_types() const;

  // The value inside this graph that stands for `outer`, a value of an enclosing graph under trace.
  Value capture(Value outer);
  // Outer values captured so far; the corresponding inputs follow the declared ones, in this order.
  const std::vector<Value>& captures() const { return captures_; }
  std::string str() const;  // the text form, see src/ir/print.cpp

 private:
  friend class TraceScope;
  std::string name_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Value> inputs_, outputs_, captures_;
  std::vector<std::string> input_names_;
  Graph* parent_ = nullptr;  // the enclosing graph under trace, if any
  std::uint32_t serial_;
};

inline const ValueType& Value::type() const {
  check();
  return node->types[static_cast<std::size_t>(index)];
}
inline Graph* Value::graph() const {
  check();
  return node->graph;
}

// Makes `graph` the current graph of this thread until the scope ends. With `nested`, values of the graph that was
// current before may be captured.
class TraceScope {
 public:
  explicit TraceScope(Graph& graph, bool nested = false);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Graph* previous_;
};
Graph& current_graph();  // UserError when nothing is being traced
bool is_tracing();

// Traces `fn` on inputs of the given types.
std::shared_ptr<Graph> trace(const TracedFunction& fn, std::span<const ValueType> input_types,
                             const std::string& name = "main");

// Appends the nodes of `graph` to the current graph, its inputs replaced by `arguments`; returns its outputs.
std::vector<Value> inline_graph(const Graph& graph, std::span<const Value> arguments);

// A graph that is traced when somebody asks for it, once: the derivative rule of a call, which most programs never need. `fn` owns what
// it uses, as it may run after everything else is gone, and sees nothing of the trace it runs in.
class LazyGraph {
 public:
  LazyGraph(TracedFunction fn, std::vector<ValueType> input_types, std::string name);
  explicit LazyGraph(std::shared_ptr<const Graph> graph);
  const std::shared_ptr<const Graph>& get() const;
  bool is_traced() const { return is_traced_; }

 private:
  mutable TracedFunction fn_;
  std::vector<ValueType> input_types_;
  std::string name_;
  mutable detail::ForkableMutex mutex_;
  mutable std::atomic<bool> is_traced_ = false;
  mutable std::shared_ptr<const Graph> graph_;
};

}  // namespace hotloop
