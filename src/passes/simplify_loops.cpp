// What goes into a loop and comes out of it in its simplest form: a carry that never changes is a const, xs that repeat
// one value are a const, a literal is written inside, nothing is passed twice, ys that only copy xs are those xs, and of a
// product from which dots take one factor out the body gets the factors.
#include <algorithm>

#include "passes/builder.h"
#include "passes/loop_edit.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

// One step alone repeats nothing: its input stays what it is in a loop of many, a step's.
bool repeats_along_time(Value v) {
  return is_kind(v, OpKind::Broadcast) && v.rank() > 0 && v.shape()[0] > 1 &&
         std::ranges::find(v.node->attrs.integers("axes"), 0) == v.node->attrs.integers("axes").end();
}

class SimplifyLoop {
 public:
  SimplifyLoop(const Node& loop, ir::Rebuild& outer, Builder& builder)
      : loop_(loop), outer_(outer), builder_(builder), edit_(loop_) {}

  bool run() {
    if (!applies()) return false;
    std::vector<int> kept_carry;
    for (int i = 0; i < loop_.num_carry(); ++i) {
      if (is_fixed(i)) continue;
      edit_.add_carry(outer_(loop_.carry(i)), loop_.carry_in(i));
      kept_carry.push_back(i);
    }
    for (int i = 0; i < loop_.num_xs(); ++i) {
      const Value v = outer_(loop_.xs(i));
      if (!repeats_along_time(v)) add_once(xs_seen_, v, loop_.xs_in(i), true);
    }
    for (int i = 0; i < loop_.num_consts(); ++i) {
      const Value v = outer_(loop_.constant(i));
      if (sinks(i))
        sunk_.emplace_back(loop_.const_in(i), *uniform_value(v));
      else
        add_once(consts_seen_, v, loop_.const_in(i), false);
    }
    for (int i = 0; i < loop_.num_carry(); ++i)
      if (is_fixed(i)) add_once(consts_seen_, outer_(loop_.carry(i)), loop_.carry_in(i), false);
    for (int i = 0; i < loop_.num_consts(); ++i) {
      if (!leaves_dots(i)) continue;
      const auto product = product_of_repeats(outer_(loop_.constant(i)));
      const auto factor = [&](Value v) {
        const Value numbers = operand(v);
        const bool is_cast = is_named(numbers, "cast");
        return Factor{v, edit_.add_const(is_cast ? operand(numbers) : numbers), is_cast};
      };
      factored_.push_back({loop_.const_in(i), factor(product->first), factor(product->second)});
    }
    for (int i = 0; i < loop_.num_xs(); ++i) {
      const Value v = outer_(loop_.xs(i));
      if (repeats_along_time(v)) repeated_.emplace_back(loop_.xs_in(i), edit_.add_const(v.node->operands[0]));
    }
    edit_.begin();
    for (const auto& [old, first] : same_) edit_.map().set(old, edit_.map()(first));
    Builder inside(edit_.body(), builder_.options());
    for (const auto& [old, number] : sunk_) edit_.map().set(old, inside.full(number, old.type()));
    for (const Factored& f : factored_) {
      const auto repeat = [&](const Factor& factor) {
        Value numbers = edit_.const_in(factor.position);
        if (factor.is_cast) numbers = inside.make("cast", {numbers}, {{"dtype", f.old.dtype()}});
        return inside.broadcast(numbers, f.old.shape(), factor.repeat.node->attrs.integers("axes"));
      };
      edit_.map().set(f.old, inside.mul(repeat(f.first), repeat(f.second)));
    }
    for (const auto& [old, position] : repeated_) {
      Axes axes = outer_(xs_of(old)).node->attrs.integers("axes");
      for (std::int64_t& axis : axes) --axis;
      edit_.map().set(old, inside.broadcast(edit_.const_in(position), old.shape(), axes));
    }
    edit_.copy_rest();
    append(kept_carry);
    return true;
  }

 private:
  bool is_fixed(int i) const { return loop_.carry_out(i) == loop_.carry_in(i); }
  bool runs_fully() const { return !loop_.until() && !loop_.has_trip(); }
  Value xs_of(Value in) const {
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (loop_.xs_in(i) == in) return loop_.xs(i);
    return {};
  }
  // A literal that is one number everywhere is written inside.
  bool sinks(int i) const {
    return !loop_.until() && uniform_value(outer_(loop_.constant(i))).has_value() &&
           loop_.constant(i).dtype() != DType::I64;
  }
  // A product of repeats that only dots read, each of which a factor can leave: then the body gets the factors. (An until region reads
  // consts by position, so the product stays where it was, unread.)
  bool leaves_dots(int i) const {
    const auto product = product_of_repeats(outer_(loop_.constant(i)));
    if (!product) return false;
    const Value in = loop_.const_in(i);
    if (std::ranges::find(loop_.body().outputs(), in) != loop_.body().outputs().end()) return false;
    bool any = false;
    for (const auto& node : loop_.body().nodes())
      for (std::size_t k = 0; k < node->operands.size(); ++k) {
        if (node->operands[k] != in) continue;
        const std::string side = k == 0 ? "lhs_" : "rhs_";
        if (node->op->kind != OpKind::Dot ||
            leaves_dot(*product, node->attrs.integers(side + "contract"), node->attrs.integers(side + "batch")) < 0)
          return false;
        any = true;
      }
    return any;
  }
  bool copies_xs(int y) const { return runs_fully() && xs_of(loop_.y_out(y)).defined(); }
  int first_equal_y(int y) const {
    for (int k = 0; k < y; ++k)
      if (loop_.y_out(k) == loop_.y_out(y)) return k;
    return y;
  }

  bool applies() const {
    for (int i = 0; i < loop_.num_carry(); ++i)
      if (is_fixed(i)) return true;
    std::vector<Value> seen;
    const auto twice = [&](Value v) {
      if (loop_.until()) return false;
      if (std::ranges::find(seen, v) != seen.end()) return true;
      seen.push_back(v);
      return false;
    };
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (repeats_along_time(outer_(loop_.xs(i))) || twice(outer_(loop_.xs(i)))) return true;
    seen.clear();
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (sinks(i) || leaves_dots(i) || twice(outer_(loop_.constant(i)))) return true;
    for (int y = 0; y < loop_.num_ys(); ++y)
      if (copies_xs(y) || first_equal_y(y) != y) return true;
    return false;
  }

  // `seen`: outer values passed so far, with the old inputs they feed.
  using Seen = std::vector<std::pair<Value, Value>>;
  void add_once(Seen& seen, Value outer, Value old, bool is_xs) {
    const auto it = std::ranges::find(seen, outer, &std::pair<Value, Value>::first);
    // The until region reads consts by position, so there each keeps its own.
    if (it != seen.end() && !loop_.until()) {
      same_.emplace_back(old, it->second);
      return;
    }
    seen.emplace_back(outer, old);
    if (is_xs)
      edit_.add_xs(outer, old);
    else
      edit_.add_const(outer, old);
  }

  void append(const std::vector<int>& kept_carry) {
    std::vector<Value> outputs;
    for (int i : kept_carry) outputs.push_back(edit_.map()(loop_.carry_out(i)));
    std::vector<int> kept_ys;
    for (int y = 0; y < loop_.num_ys(); ++y) {
      if (copies_xs(y) || first_equal_y(y) != y) continue;
      outputs.push_back(edit_.map()(loop_.y_out(y)));
      kept_ys.push_back(y);
    }
    Node* node = edit_.finish(outer_, std::move(outputs));
    int next = 0;
    for (int i : kept_carry) outer_.map().set(loop_.carry_result(i), node->result(next++));
    for (int y : kept_ys) outer_.map().set(loop_.ys_result(y), node->result(next++));
    outer_.map().set(loop_.count_result(), node->result(next));
    for (int i = 0; i < loop_.num_carry(); ++i)
      if (is_fixed(i)) outer_.map().set(loop_.carry_result(i), outer_(loop_.carry(i)));
    for (int y = 0; y < loop_.num_ys(); ++y) {
      if (copies_xs(y))
        outer_.map().set(loop_.ys_result(y), outer_(xs_of(loop_.y_out(y))));
      else if (first_equal_y(y) != y)
        outer_.map().set(loop_.ys_result(y), outer_(loop_.ys_result(first_equal_y(y))));
    }
  }

  ir::LoopView loop_;
  ir::Rebuild& outer_;
  Builder& builder_;
  LoopEdit edit_;
  Seen xs_seen_, consts_seen_;
  std::vector<std::pair<Value, Value>> same_;   // old input -> earlier old input that is fed the same
  std::vector<std::pair<Value, double>> sunk_;  // old const -> the number it is
  struct Factor {
    Value repeat;  // outside
    int position;  // of the const that is repeated
    bool is_cast;  // of that const: the body is to know that these are units
  };
  struct Factored {
    Value old;
    Factor first, second;
  };
  std::vector<Factored> factored_;
  std::vector<std::pair<Value, int>> repeated_;  // old xs -> position of the const that replaces it
};

std::shared_ptr<const Graph> simplify_loops_level(const Graph& graph, const PassOptions& options) {
  return rewrite_loops(graph, [&](const Node& loop, ir::Rebuild& outer) {
    Builder builder(outer.to(), options);
    return SimplifyLoop(loop, outer, builder).run();
  });
}

}  // namespace

Pass simplify_loops() {
  return {"simplify_loops", "carries that never change, repeated xs and literals leave the interface of loops", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph,
                                  [&](const Graph& g, const Level&) { return simplify_loops_level(g, options); });
          }};
}

}  // namespace hotloop::passes
