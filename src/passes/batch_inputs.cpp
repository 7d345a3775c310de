// dot(x_t, W) in a loop, x_t an element of xs and W the same in every iteration, becomes one dot over all steps before
// the loop, when the wide dot earns what storing its result costs (`is_worth_a_dot`). It takes along what it is added
// to: a sum that begins x_t W + b (order_sums) then goes on from b + x_t W, which is where it stands, to the bit, without the pass.
// Where the elements of xs are rows of a table, fewer than the steps take of it, the product always leaves: lookup_products makes it once for each row.
#include <algorithm>

#include "passes/all_steps.h"
#include "passes/dot_sides.h"
#include "passes/input_products.h"
#include "passes/lookups.h"
#include "passes/loop_edit.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

constexpr std::int64_t min_contraction = 64;

// A sum of products in a loop's step.
struct StepSum {
  std::int64_t depth, rows, width;  // terms of each number; `rows` rows of `width` numbers
  std::int64_t steps;
  std::int64_t loop_weight_bytes;  // of all products of a step with what stays the same
  DType dtype;
  std::int64_t bytes() const { return static_cast<std::int64_t>(size_of(dtype)) * rows * width; }
};

// Whether such sums are computed for all steps at once.
// Many rows fill the registers in a step as well, and what a tile of them makes of all steps must then stay in the second
// cache: from beyond it a step's sums take longer to come than to be made (LSTM T100 I64 H256 1.09 times, T200 I8 H64 of two layers 1.1
// where they are made in the loop; where they stay 0.93 to 1.04). Long products read more of the weights in each step than that would cost.
// One or two rows read weights for little work. Where those of all products leave the first cache, short ones are worth it too
// (one row, Zen 4: LSTM I8 H64 1.04, I32 H64 1.21, I48 H32 1.34, GRU I8 H64 1.12; where they stay 0.87 to 0.99), unless what they make of all steps
// leaves the second cache by far: it then takes about as long to come as weights of 16 inputs from the second cache.
bool is_worth_a_dot(const StepSum& sum) {
  constexpr std::int64_t few_rows = 8, most_tile_rows = 16, near_bytes = 1 << 20, long_contraction = 256;
  if (sum.depth >= min_contraction) {
    if (sum.rows < few_rows || sum.depth > long_contraction) return true;
    const std::int64_t tile_bytes = sum.bytes() / sum.rows * std::min(sum.rows, most_tile_rows);
    return tile_bytes <= near_bytes / std::max<std::int64_t>(sum.steps, 1);
  }
  constexpr std::int64_t one_or_two = 2, first_cache = 32 << 10, far_bytes = 4 * near_bytes;
  const bool is_far = sum.bytes() > far_bytes / std::max<std::int64_t>(sum.steps, 1);
  return sum.rows <= one_or_two && sum.loop_weight_bytes > first_cache && sum.depth >= (is_far ? 32 : 8);
}

class BatchInputs {
 public:
  BatchInputs(const Node& loop, ir::Rebuild& outer, Builder& builder)
      : loop_(loop),
        outer_(outer),
        builder_(builder),
        invariant_(invariant_values(loop_.body(), loop_)),
        inputs_(loop_, invariant_),
        uses_(loop_.body()),
        all_steps_(loop_, invariant_, outer_, builder_),
        edit_(loop_) {}

  bool run() {
    // A loop that may end early would compute steps nobody needs.
    if (loop_.until() || loop_.has_trip()) return false;
    find_sums();
    const std::vector<const Node*> leaving = crossing();
    if (leaving.empty()) return false;
    edit_.keep_carry(outer_);
    edit_.keep_xs(outer_);
    std::vector<int> positions;
    for (const Node* node : leaving) positions.push_back(edit_.add_xs(over_all_steps(result_of(*node))));
    edit_.keep_consts(outer_);
    edit_.begin();
    for (std::size_t i = 0; i < leaving.size(); ++i) edit_.map().set(result_of(*leaving[i]), edit_.xs_in(positions[i]));
    edit_.copy_rest();
    std::vector<Value> outputs;
    for (const Value& v : loop_.body().outputs()) outputs.push_back(edit_.map()(v));
    Node* made = edit_.finish(outer_, std::move(outputs));
    for (int i = 0; i < static_cast<int>(made->types.size()); ++i)
      outer_.map().set({const_cast<Node*>(&loop_.node()), i}, made->result(i));
    return true;
  }

 private:
  static Value result_of(const Node& node) { return const_cast<Node&>(node).result(); }
  static std::size_t id(const Node& node) { return static_cast<std::size_t>(node.id); }

  // Products with the inputs, and sums of them and of what stays the same: how many products a number of each takes, and the rows they have.
  void find_sums() {
    const auto& nodes = loop_.body().nodes();
    depth_.assign(nodes.size(), 0);
    rows_.assign(nodes.size(), 0);
    places_.assign(nodes.size(), Value{});
    weight_bytes_ = 0;
    for (const auto& node : nodes) {
      if (node->op->kind != OpKind::Dot) continue;
      for (const Value& factor : node->operands)
        if (inputs_.is_invariant(factor)) weight_bytes_ += static_cast<std::int64_t>(factor.type().bytes());
    }
    for (const auto& node : nodes) {
      if (const int side = inputs_.side(*node); side >= 0) {
        if (!all_steps_.is_found_outside(node->operands[static_cast<std::size_t>(1 - side)])) continue;
        depth_[id(*node)] = 1;
        for (const std::int64_t axis : node->attrs.integers("lhs_contract"))
          depth_[id(*node)] *= node->operands[0].shape()[static_cast<int>(axis)];
        rows_[id(*node)] = node->operands[static_cast<std::size_t>(side)].shape().size() /
                           std::max<std::int64_t>(depth_[id(*node)], 1);
        places_[id(*node)] = places_of_rows(*node, side);
        // One that is read in several places is a value by itself, added as it is: it leaves for all of them or for none.
        if (is_shared(*node) && !leaves(*node)) depth_[id(*node)] = 0;
      } else if (node->op->kind == OpKind::Elementwise && node->op->scalar == ir::ScalarOp::Add) {
        std::int64_t sum = 0;
        bool is_sum = true;
        for (const Value& v : node->operands) {
          // What was computed before the loop may as well have taken its bias along.
          const std::int64_t depth = inputs_.is_computed(v) ? min_contraction : depth_[id(*v.node)];
          is_sum = is_sum && (depth > 0 || (all_steps_.is_found_outside(v)));
          sum += depth;
        }
        if (!is_sum) continue;
        depth_[id(*node)] = sum;
        rows_[id(*node)] = std::max(rows_[id(*node->operands[0].node)], rows_[id(*node->operands[1].node)]);
        places_[id(*node)] = places_of_sum(*node);
      }
    }
  }

  // The places at which all steps look up the rows that the product is made with, if it is worth making for their table instead; else undefined.
  Value places_of_rows(const Node& dot, int side) const {
    const std::optional<Lookup> lookup = lookup_of(outer_(loop_.xs(loop_.xs_at(dot.operands[at(side)]))));
    const std::int64_t of_a_step = lookup ? lookup->num_places_axes() - 1 : 0;
    if (!lookup || lookup->axis != 0) return {};
    for (const std::int64_t axis : dot.attrs.integers(contract_name(side)))
      if (axis < of_a_step) return {};
    const std::int64_t places = num_places(lookup->places.shape(), builder_.options());
    return earns_products_of_table(lookup->table_rows(), places, depth_[id(dot)]) ? lookup->places : Value{};
  }

  // The same of a sum whose terms are looked up at the same places, or are the same for all of them.
  Value places_of_sum(const Node& sum) const {
    Value places;
    for (const Value& v : sum.operands) {
      const Value of_term = places_[id(*v.node)];
      if (of_term.defined() ? places.defined() && of_term != places : !is_kind(v, OpKind::Broadcast)) return {};
      if (of_term.defined()) places = of_term;
    }
    if (!places.defined()) return {};
    for (const Value& v : sum.operands)
      if (!places_[id(*v.node)].defined())
        for (const std::int64_t axis : v.node->attrs.integers("axes"))
          if (axis < places.rank() - 1) return {};
    return places;
  }

  // Of these the long ones that are read where it is no such sum, nor the beginning of one.
  std::vector<const Node*> crossing() const {
    const auto& nodes = loop_.body().nodes();
    std::vector<bool> is_read(nodes.size());
    for (const auto& node : nodes) is_read[id(*node)] = depth_[id(*node)] > 0 && is_shared(*node);
    for (const auto& node : nodes)
      if (depth_[id(*node)] == 0 || !leaves(*node))
        for (const Value& v : node->operands) is_read[id(*v.node)] = true;
    for (const Value& v : loop_.body().outputs()) is_read[id(*v.node)] = true;
    std::vector<const Node*> found;
    for (const auto& node : nodes)
      if (is_read[id(*node)] && leaves(*node) && !goes_on(*node)) found.push_back(node.get());
    return found;
  }

  bool is_shared(const Node& node) const {
    const Value v = result_of(node);
    return node.op->kind == OpKind::Dot && (uses_.count(v) != 1 || uses_.is_output(v));
  }

  // Whether a product goes on from a sum of other values: it would begin at 0 outside.
  bool goes_on(const Node& node) const {
    const Value v = result_of(node);
    if (node.op->kind != OpKind::Dot || is_shared(node)) return false;
    const ir::Use& use = uses_.of(v)[0];
    return use.operand == 1 && is_scalar_op(result_of(*use.node), ir::ScalarOp::Add);
  }

  bool leaves(const Node& node) const {
    if (places_[id(node)].defined()) return true;
    const std::int64_t rows = rows_[id(node)];
    const std::int64_t width = node.types[0].shape.size() / std::max<std::int64_t>(rows, 1);
    return is_worth_a_dot({.depth = depth_[id(node)],
                           .rows = rows,
                           .width = width,
                           .steps = loop_.length(),
                           .loop_weight_bytes = weight_bytes_,
                           .dtype = node.types[0].dtype});
  }

  // A value of all steps, time first.
  Value over_all_steps(Value v) {
    return all_steps_(v, [&](const Node& node) {
      return node.op->kind == OpKind::Dot
                 ? dot_over_all_steps(node)
                 : builder_.add(over_all_steps(node.operands[0]), over_all_steps(node.operands[1]));
    });
  }

  Value dot_over_all_steps(const Node& dot) {
    const int side = inputs_.side(dot);
    const Value xs = over_all_steps(dot.operands[static_cast<std::size_t>(side)]);
    const Value weight = all_steps_.outside(dot.operands[static_cast<std::size_t>(1 - side)]);
    return dot_of_all_steps(builder_, dot, side, xs, weight);
  }

  ir::LoopView loop_;
  ir::Rebuild& outer_;
  Builder& builder_;
  std::vector<bool> invariant_;
  InputProducts inputs_;
  ir::Uses uses_;
  AllSteps all_steps_;
  std::vector<std::int64_t> depth_;  // by node; 0 for what stays
  std::vector<std::int64_t> rows_;   // of products with the inputs, and of sums with one
  std::vector<Value> places_;        // of those that are worth making for each row of a table
  std::int64_t weight_bytes_ = 0;    // of the products of a step
  LoopEdit edit_;
};

std::shared_ptr<const Graph> batch_level(const Graph& graph, const PassOptions& options) {
  return rewrite_loops(graph, [&](const Node& loop, ir::Rebuild& outer) {
    Builder builder(outer.to(), options);
    return BatchInputs(loop, outer, builder).run();
  });
}

}  // namespace

Pass batch_inputs() {
  return {"batch_inputs", "input projections leave loops as one dot over all steps", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return batch_level(g, options); });
          }};
}

}  // namespace hotloop::passes
