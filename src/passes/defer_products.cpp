// A carry that only accumulates, acc + dot(a_t, b_t) or acc + reduce_sum(a_t), is not computed in the loop: a and b are
// kept for all steps, and after the loop one contraction over time as well gives the sum. This is how weight
// gradients come to be one dot. Terms may be any linear function of such sums: changes of index (slices, transposes, ...), sums, differences and
// concatenations, products with what is the same in every iteration. It is applied once, after the loop.
//
// Keeping pays for products, whose work it moves, and for sums of what is there for all steps anyway (the gradient of a bias beside that of its
// weights). Another sum's operand is added up element by element over time instead, one carry in place of a tape, and reduced after the loop: the
// gradient of a gain, by which a user's cell scales what it normalised.
//
// With `until` or `trip`, both factors are made ys, which are zero where the loop did not run.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "passes/all_steps.h"
#include "passes/loop_edit.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;
using ir::ScalarOp;

bool is_add(const Node& node) { return node.op->kind == OpKind::Elementwise && node.op->scalar == ScalarOp::Add; }

class DeferProducts {
 public:
  DeferProducts(const Node& loop, ir::Rebuild& outer, Builder& builder)
      : loop_(loop),
        outer_(outer),
        builder_(builder),
        uses_(loop_.body()),
        index_(loop_.body()),
        invariant_(invariant_values(loop_.body(), loop_)),
        all_steps_(loop_, invariant_, outer, builder),
        after_(loop_.body()),
        edit_(loop_) {}

  bool run() {
    if (loop_.num_lane_axes() > 0 || loop_.length() == 0) return false;
    // A loop that may end early is often given far more iterations than it takes, and what is deferred runs over all of them.
    constexpr std::int64_t most_idle = 256;
    if ((loop_.until() || loop_.has_trip()) && loop_.length() > most_idle) return false;
    // The way back through a loop that ended by itself: in a batch each element adds to a sum of its own for as long as it ran, and the
    // sums of one alone are to be these.
    if (loop_.has_trip() && is_kind(loop_.trip(), OpKind::Loop)) return false;
    for (int i = 0; i < loop_.num_carry(); ++i) split_carry(i);
    if (sums_.empty()) return false;
    choose_accumulated();
    rebuild_loop();
    for (const Sum& sum : sums_) {
      Value total = sum.rest.empty() ? outer_(loop_.carry(sum.carry)) : made_->result(position_of_carry(sum.carry));
      for (const Value& term : sum.deferred) total = builder_.add(total, after_loop(term));
      outer_.map().set(loop_.carry_result(sum.carry), total);
    }
    return true;
  }

 private:
  struct Sum {
    int carry;
    std::vector<Value> deferred, rest;  // terms of the body
  };

  bool invariant(Value v) const { return invariant_[static_cast<std::size_t>(index_(v))]; }

  // The terms added to carry i, if it is read by nothing else.
  void split_carry(int i) {
    const Value in = loop_.carry_in(i), out = loop_.carry_out(i);
    if (!is_float(in.dtype()) || uses_.count(in) != 1 || uses_.is_output(in) || is_read_by_until(i)) return;
    if (std::ranges::count(loop_.body().outputs(), out) != 1) return;
    Sum sum{i, {}, {}};
    std::vector<Value> terms;
    Value v = in;
    while (v != out) {
      if (uses_.count(v) != 1 || uses_.is_output(v)) return;
      const ir::Use use = uses_.of(v)[0];
      if (!is_add(*use.node)) return;
      const Value other = use.node->operands[static_cast<std::size_t>(1 - use.operand)];
      if (keeps_grouping(*use.node) && !is_product(other)) return;
      flatten(other, terms);
      v = const_cast<Node*>(use.node)->result();
    }
    if (uses_.count(out) != 1) return;
    for (const Value& t : terms) (is_product(t) ? sum.deferred : sum.rest).push_back(t);
    if (!sum.deferred.empty()) sums_.push_back(std::move(sum));
  }

  bool is_read_by_until(int i) const {
    if (!loop_.until()) return false;
    const ir::Uses uses(*loop_.until());
    return uses.count(loop_.until_carry_in(i)) > 0;
  }

  void flatten(Value v, std::vector<Value>& terms) const {
    if (is_add(*v.node) && uses_.count(v) == 1 && !uses_.is_output(v) && !keeps_grouping(*v.node)) {
      flatten(v.node->operands[0], terms);
      flatten(v.node->operands[1], terms);
    } else {
      terms.push_back(v);
    }
  }

  // The operands x of f where f(sum of x_t) = sum of f(x_t), up to rounding; none where there are none. Where no iteration ran the sum is 0,
  // whatever it is multiplied by: factors stay in loops that may end early.
  std::vector<Value> linear_in(const Node& node) const {
    const auto& o = node.operands;
    const auto beside_factor = [&](bool either) -> std::vector<Value> {
      if (loop_.until() || loop_.has_trip()) return {};
      if (all_steps_.is_found_outside(o[1])) return {o[0]};
      if (either && all_steps_.is_found_outside(o[0])) return {o[1]};
      return {};
    };
    switch (node.op->kind) {
      case OpKind::Reshape:
      case OpKind::Transpose:
      case OpKind::Slice:
      case OpKind::Broadcast:
      case OpKind::Reverse: return {o[0]};
      // Another number than 0 would come once, where each step has it.
      case OpKind::Pad: return is_number(o[1], 0) ? std::vector{o[0]} : std::vector<Value>{};
      case OpKind::Concat: return o;
      case OpKind::Dot: return beside_factor(true);
      case OpKind::Reduce: return node.op->name == "reduce_sum" ? std::vector{o[0]} : std::vector<Value>{};
      case OpKind::Elementwise: break;
      default: return {};
    }
    switch (node.op->scalar) {
      case ScalarOp::Neg: return {o[0]};
      case ScalarOp::Add:
      case ScalarOp::Sub: return {o[0], o[1]};
      case ScalarOp::Mul: return beside_factor(true);
      case ScalarOp::Div: return beside_factor(false);
      case ScalarOp::Select: {
        if (!all_steps_.is_found_outside(o[0])) return {};
        if (is_number(o[1], 0)) return {o[2]};
        return is_number(o[2], 0) ? std::vector{o[1]} : std::vector{o[1], o[2]};
      }
      default: return {};
    }
  }

  // What a value is to the sum of it over the steps: a sum of products that is deferred, a linear function of such, or neither.
  enum class Role : std::uint8_t { None, Sum, Linear };
  Role role_of(Value v) {
    const std::pair<const Node*, int> key{v.node, v.index};
    const auto known = roles_.find(key);
    if (known != roles_.end()) return known->second;
    const Node& node = *v.node;
    const std::vector<Value> operands = linear_in(node);
    const auto changes = [&](int i) { return !invariant(node.operands[static_cast<std::size_t>(i)]); };
    Role role = Role::None;
    if (is_pair_of_sums(node) && role_of(node.operands[0]) == Role::Sum && role_of(node.operands[1]) == Role::Sum)
      role = Role::Sum;
    else if (!operands.empty() && std::ranges::all_of(operands, [&](Value o) { return role_of(o) != Role::None; }))
      role = Role::Linear;
    else if (node.op->kind == OpKind::Dot && changes(0) && changes(1))
      role = Role::Sum;
    else if (node.op->name == "reduce_sum" && changes(0))
      role = Role::Sum;
    return roles_[key] = role;
  }
  bool is_product(Value term) { return role_of(term) != Role::None; }

  // The dots, reductions and pairs of reductions of a term. Values meet again on many ways.
  void sums_of(Value term, std::set<const Node*>& seen, std::vector<const Node*>& sums) {
    if (!seen.insert(term.node).second) return;
    if (role_of(term) == Role::Sum) return sums.push_back(term.node);
    for (const Value& v : linear_in(*term.node)) sums_of(v, seen, sums);
  }

  // What dots read is kept. The operands of sums that are not are accumulated.
  void choose_accumulated() {
    std::vector<const Node*> all;
    std::set<const Node*> seen;
    for (const Sum& sum : sums_)
      for (const Value& term : sum.deferred) sums_of(term, seen, all);
    for (const Node* dot : all)
      if (dot->op->kind == OpKind::Dot)
        for (const Value& factor : dot->operands) keep(factor);
    for (const Node* sum : all) {
      if (sum->op->kind == OpKind::Dot) continue;
      const bool is_there = !is_pair_of_sums(*sum) && is_kept(sum->operands[0]);
      if (!is_there && std::ranges::find(accumulated_, sum) == accumulated_.end()) accumulated_.push_back(sum);
    }
  }

  // Two sums over the same axes, added or subtracted: one sum of what is added or subtracted element by element.
  static bool is_pair_of_sums(const Node& node) {
    if (node.op->scalar != ScalarOp::Add && node.op->scalar != ScalarOp::Sub) return false;
    const Value a = node.operands[0], b = node.operands[1];
    return is_named(a, "reduce_sum") && is_named(b, "reduce_sum") &&
           a.node->attrs.integers("axes") == b.node->attrs.integers("axes") &&
           a.node->operands[0].type() == b.node->operands[0].type();
  }

  static const Node& reduction(const Node& sum) { return is_pair_of_sums(sum) ? *sum.operands[0].node : sum; }

  // ---- the loop without the sums --------------------------------------------------------------------------------
  bool is_xs(Value v) const {
    if (loop_.until() || loop_.has_trip()) return false;
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (loop_.xs_in(i) == v) return true;
    return false;
  }
  // Whether v is kept as what it is a view of: a repeat needs its value once, and parts of xs are there already.
  bool is_view_of_kept(Value v) const {
    if (is_kind(v, OpKind::Broadcast) || is_kind(v, OpKind::Reshape) || is_kind(v, OpKind::Transpose)) return true;
    if (!is_kind(v, OpKind::Slice)) return false;
    const Value source = v.node->operands[0];
    return is_xs(source) || is_view_of_kept(source);
  }
  Value kept(Value v) const {
    while (is_view_of_kept(v)) v = v.node->operands[0];
    return v;
  }
  bool is_kept(Value v) const {
    v = kept(v);
    if (invariant(v) || is_xs(v) || std::ranges::find(new_ys_, v) != new_ys_.end() || whole_of(v) != nullptr)
      return true;
    for (int y = 0; y < loop_.num_ys(); ++y)
      if (loop_.y_out(y) == v) return true;
    return false;
  }
  void keep(Value v) {
    if (!is_kept(v)) new_ys_.push_back(kept(v));
  }

  // The kept concat that v is a part of, if there is one: v need not be kept itself.
  const Node* whole_of(Value v) const {
    for (const Value& y : new_ys_)
      if (is_kind(y, OpKind::Concat) && std::ranges::find(y.node->operands, v) != y.node->operands.end()) return y.node;
    return nullptr;
  }

  const Sum* sum_of(int carry) const {
    const auto it = std::ranges::find(sums_, carry, &Sum::carry);
    return it == sums_.end() ? nullptr : &*it;
  }
  bool drops(int carry) const { return sum_of(carry) != nullptr && sum_of(carry)->rest.empty(); }
  int position_of_carry(int carry) const {
    int position = 0;
    for (int i = 0; i < carry; ++i) position += !drops(i);
    return position;
  }

  void rebuild_loop() {
    std::vector<Value> wholes;  // a concat stays, so that its parts can be found in it
    for (const Value& v : new_ys_)
      if (is_kind(v, OpKind::Concat) || whole_of(v) == nullptr) wholes.push_back(v);
    new_ys_ = std::move(wholes);
    for (int i = 0; i < loop_.num_carry(); ++i)
      if (!drops(i)) edit_.add_carry(outer_(loop_.carry(i)), loop_.carry_in(i));
    first_accumulated_ = position_of_carry(loop_.num_carry());
    for (const Node* sum : accumulated_) edit_.add_carry(builder_.full(0, reduction(*sum).operands[0].type()), {});
    edit_.keep_xs(outer_);
    edit_.keep_consts(outer_);
    edit_.begin();
    edit_.copy_rest();
    std::vector<Value> outputs;
    for (int i = 0; i < loop_.num_carry(); ++i) {
      if (drops(i)) continue;
      if (const Sum* sum = sum_of(i)) {
        Builder inside(edit_.body(), builder_.options());
        Value total = edit_.map()(loop_.carry_in(i));
        for (const Value& t : sum->rest) total = inside.add(total, edit_.map()(t));
        outputs.push_back(total);
      } else {
        outputs.push_back(edit_.map()(loop_.carry_out(i)));
      }
    }
    Builder inside(edit_.body(), builder_.options());
    for (const Node* sum : accumulated_) {
      const auto added = [&](const Node& reduce) { return edit_.map()(reduce.operands[0]); };
      const Value now = is_pair_of_sums(*sum)
                            ? inside.make(*sum->op, {added(*sum->operands[0].node), added(*sum->operands[1].node)})
                            : added(*sum);
      outputs.push_back(inside.add(edit_.body().inputs()[outputs.size()], now));
    }
    const int num_carry = static_cast<int>(outputs.size());
    for (int y = 0; y < loop_.num_ys(); ++y) outputs.push_back(edit_.map()(loop_.y_out(y)));
    for (const Value& v : new_ys_) outputs.push_back(edit_.map()(v));
    made_ = edit_.finish(outer_, std::move(outputs));
    for (int i = 0; i < loop_.num_carry(); ++i)
      if (!drops(i)) outer_.map().set(loop_.carry_result(i), made_->result(position_of_carry(i)));
    for (int y = 0; y < loop_.num_ys(); ++y) outer_.map().set(loop_.ys_result(y), made_->result(num_carry + y));
    first_new_y_ = num_carry + loop_.num_ys();
    outer_.map().set(loop_.count_result(), made_->result(static_cast<int>(made_->types.size()) - 1));
  }

  // ---- after the loop -------------------------------------------------------------------------------------------
  // All steps of a body value, time leading.
  Value all_steps(Value v) {
    if (is_view_of_kept(v)) return of_all_steps(builder_, *v.node, {all_steps(v.node->operands[0])}, loop_.length());
    if (is_xs(v)) {
      for (int i = 0; i < loop_.num_xs(); ++i)
        if (loop_.xs_in(i) == v) return outer_(loop_.xs(i));
    }
    for (int y = 0; y < loop_.num_ys(); ++y)
      if (loop_.y_out(y) == v) return outer_(loop_.ys_result(y));
    if (const Node* whole = whole_of(v)) {
      const int axis = static_cast<int>(whole->attrs.integer("axis"));
      std::int64_t start = 0;
      for (std::size_t k = 0; whole->operands[k] != v; ++k) start += whole->operands[k].shape()[axis];
      return builder_.narrow(all_steps(const_cast<Node*>(whole)->result()), axis + 1, start, start + v.shape()[axis]);
    }
    const auto position = std::ranges::find(new_ys_, v) - new_ys_.begin();
    return made_->result(first_new_y_ + static_cast<int>(position));
  }

  Value after_loop(Value term) {
    if (const Value made = after_.find(term); made.defined()) return made;
    const Value made = role_of(term) == Role::Linear ? function_of_sums(*term.node) : sum_over_time(*term.node);
    after_.set(term, made);
    return made;
  }

  Value function_of_sums(const Node& term) {
    const std::vector<Value> linear = linear_in(term);
    std::vector<Value> operands;
    for (const Value& o : term.operands)
      operands.push_back(std::ranges::find(linear, o) != linear.end() ? after_loop(o) : all_steps_.outside(o));
    return builder_.make(*term.op, std::move(operands), term.attrs);
  }

  Value sum_over_time(const Node& term) {
    const auto shifted = [&](const char* name, bool with_time) {
      Axes axes = term.attrs.integers(name);
      for (std::int64_t& axis : axes) ++axis;
      if (with_time) axes.insert(axes.begin(), 0);
      return axes;
    };
    if (term.op->kind == OpKind::Dot)
      return builder_.dot(all_steps(term.operands[0]), all_steps(term.operands[1]), shifted("lhs_contract", true),
                          shifted("rhs_contract", true), shifted("lhs_batch", false), shifted("rhs_batch", false));
    if (const auto it = std::ranges::find(accumulated_, &term); it != accumulated_.end())
      return builder_.reduce_sum(made_->result(first_accumulated_ + static_cast<int>(it - accumulated_.begin())),
                                 reduction(term).attrs.integers("axes"));
    return builder_.reduce_sum(all_steps(term.operands[0]), shifted("axes", true));
  }

  ir::LoopView loop_;
  ir::Rebuild& outer_;
  Builder& builder_;
  ir::Uses uses_;
  ir::ValueIndex index_;
  std::vector<bool> invariant_;
  AllSteps all_steps_;
  ir::ValueMap after_;  // terms of the body -> their sums over time
  std::map<std::pair<const Node*, int>, Role> roles_;
  LoopEdit edit_;
  std::vector<Sum> sums_;
  std::vector<Value> new_ys_;             // body values that become ys
  std::vector<const Node*> accumulated_;  // sums, or pairs of sums, whose operands are added up element by element
  Node* made_ = nullptr;
  int first_new_y_ = 0, first_accumulated_ = 0;
};

std::shared_ptr<const Graph> defer_level(const Graph& graph, const PassOptions& options) {
  return rewrite_loops(graph, [&](const Node& loop, ir::Rebuild& outer) {
    Builder builder(outer.to(), options);
    return DeferProducts(loop, outer, builder).run();
  });
}

}  // namespace

Pass defer_products() {
  return {"defer_products", "sums of products over time, such as weight gradients, become one dot after the loop", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return defer_level(g, options); });
          }};
}

}  // namespace hotloop::passes
