// A loop under reconstruction: first its inputs are listed, then its body is built, then it is appended.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "passes/pass.h"

namespace hotloop::passes {

class LoopEdit {
 public:
  explicit LoopEdit(const ir::LoopView& loop) : loop_(loop), map_(loop.body()) {}

  // `outer` is a value of the graph the new loop goes into; `old` the input of the old body it feeds, if any.
  int add_carry(Value outer, Value old) { return add(carry_, outer, old); }
  int add_xs(Value outer, Value old = {}) { return add(xs_, outer, old); }
  int add_const(Value outer, Value old = {}) { return add(consts_, outer, old); }
  // All old inputs of a kind, with their mapped operands.
  void keep_carry(const ir::Rebuild& outer);
  void keep_xs(const ir::Rebuild& outer);
  void keep_consts(const ir::Rebuild& outer);

  // Creates the body's inputs. After it, map() takes old body values to new ones.
  void begin();
  const ir::LoopView& loop() const { return loop_; }
  Graph& body() { return *body_; }
  ir::ValueMap& map() { return map_; }
  Value xs_in(int i) const { return body_->inputs()[carry_.size() + static_cast<std::size_t>(i)]; }
  Value const_in(int i) const { return body_->inputs()[carry_.size() + xs_.size() + static_cast<std::size_t>(i)]; }
  // Copies an old body node, or all that have no image yet.
  void copy(const Node& node);
  void copy_rest();

  // Appends the loop; `outputs` are the new body's carry and ys.
  Node* finish(ir::Rebuild& outer, std::vector<Value> outputs);

 private:
  struct Entry {
    Value outer, old;
  };
  static int add(std::vector<Entry>& list, Value outer, Value old) {
    list.push_back({outer, old});
    return static_cast<int>(list.size()) - 1;
  }
  std::shared_ptr<const Graph> until();

  ir::LoopView loop_;
  std::vector<Entry> carry_, xs_, consts_;
  std::shared_ptr<Graph> body_;
  ir::ValueMap map_;
};

// `rewrite` is asked for each loop of the graph: it appends what takes the loop's place and maps the loop's results to that, or leaves it as it is
// and says false. Null when all stay.
std::shared_ptr<const Graph> rewrite_loops(const Graph& graph,
                                           const std::function<bool(const Node& loop, ir::Rebuild& outer)>& rewrite);

}  // namespace hotloop::passes
