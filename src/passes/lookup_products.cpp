// Products with rows of a table are products of the table: take(table, i) @ w is take(table @ w, i), to the bit, and where more rows are looked
// up than the table has, as of embeddings over the steps of a sequence or of a graph's nodes over its edges, it is less work. Additions and
// functions of what was found so follow. The way back adds up by places first: of rows x = take(table, i), the sum of x^T g is
// table^T s and that of g w^T at the places i is s w^T, where s has in each row the sum of the g that belong there.
//
// Loops read what they look up as xs (batch_inputs takes its products along). They emit the slopes of it, one product for each step: if what the product
// reads is emitted as well, as it is for the slopes of the weights, it is made of all steps, after the loop.
#include <algorithm>
#include <numeric>
#include <set>

#include "hotloop/error.h"
#include "passes/all_steps.h"
#include "passes/dot_sides.h"
#include "passes/lookups.h"
#include "passes/loop_edit.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

Value result_of(const Node& node) { return const_cast<Node&>(node).result(); }

// What is added up in zeros, by places: a sum of terms, each without its transposes; axis i of the updates is axis order[i] of the term.
struct SumsByPlace {
  struct Term {
    Value value;
    Axes order;
  };
  Value places;
  int axis;
  std::int64_t rows, width;  // of what they are added up to
  std::vector<Term> terms;
  Axes place_axes(const Term& term) const {
    return {term.order.begin() + axis, term.order.begin() + axis + places.rank()};
  }
};

void collect_terms(Value v, Axes order, const ir::Uses& uses, std::vector<SumsByPlace::Term>& terms) {
  while (is_kind(v, OpKind::Transpose) && uses.count(v) == 1) {
    const Axes& permutation = v.node->attrs.integers("permutation");
    for (std::int64_t& axis : order) axis = permutation[at(axis)];
    v = operand(v);
  }
  if (is_scalar_op(v, ir::ScalarOp::Add) && uses.count(v) == 1 && !keeps_grouping(*v.node))
    for (const Value& term : v.node->operands) collect_terms(term, order, uses, terms);
  else
    terms.push_back({v, std::move(order)});
}

std::optional<SumsByPlace> sums_by_place(const Node& node, const ir::Uses& uses) {
  if (node.op->kind != OpKind::ScatterAdd || ir::num_lane_axes(node.attrs) != 0 || !is_number(node.operands[0], 0) ||
      !is_float(node.types[0].dtype) || node.operands[1].rank() == 0)
    return {};
  const Shape& shape = node.types[0].shape;
  SumsByPlace sums{node.operands[1], static_cast<int>(node.attrs.integer("axis")), 0, 0, {}};
  sums.rows = shape[sums.axis];
  sums.width = shape.size() / std::max<std::int64_t>(sums.rows, 1);
  Axes order(at(node.operands[2].rank()));
  std::iota(order.begin(), order.end(), 0);
  collect_terms(node.operands[2], std::move(order), uses, sums.terms);
  return sums;
}

// Sums by place of updates, whose axes `place_axes` are those of the places: (rows, other axes). They are added up as they lie, whatever the order of the
// places.
Value sum_by_place(Builder& b, std::int64_t rows, Value places, Value updates, const Axes& place_axes) {
  Axes order(place_axes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int64_t i) { return place_axes[at(i)]; });
  Axes sorted = place_axes;
  std::ranges::sort(sorted);
  Shape shape{rows};
  const Axes rest = ir::other_axes(updates.rank(), sorted);
  for (const std::int64_t axis : rest) shape.push_back(updates.shape()[static_cast<int>(axis)]);
  sorted.insert(sorted.end(), rest.begin(), rest.end());
  return b.make("scatter_add",
                {b.full(0, {updates.dtype(), shape}), b.transpose(places, order), b.transpose(updates, sorted)},
                {{"axis", std::int64_t{0}}});
}

// On one level.
class LookupProducts {
 public:
  LookupProducts(const Graph& graph, const Level& level, const PassOptions& options)
      : graph_(graph),
        level_(level),
        index_(graph),
        uses_(graph),
        rebuild_(graph),
        builder_(rebuild_.to(), options),
        is_of_table_(graph.nodes().size()) {}

  std::shared_ptr<const Graph> run() {
    bool changed = false;
    for (const auto& node : graph_.nodes()) {
      if (node->op->kind == OpKind::Input) continue;
      builder_.set_generation(node->generation);
      Value v;
      if (node->op->kind == OpKind::Dot) v = dot(*node);
      if (node->op->kind == OpKind::Elementwise) v = function_of_table(*node);
      if (node->op->kind == OpKind::ScatterAdd) v = products_of_sums(*node);
      if (!v.defined()) {
        rebuild_.copy(*node);
        continue;
      }
      HOTLOOP_CHECK(v.type() == node->types[0], "what is looked up has the type of what it stands for");
      rebuild_.map().set(node->result(), v);
      changed = true;
    }
    return changed ? rebuild_.finish() : nullptr;
  }

 private:
  bool invariant(Value v) const { return level_.invariant[at(index_(v))]; }
  bool is_used_once(Value v) const { return uses_.count(v) == 1 && !uses_.is_output(v); }

  Value dot(const Node& node) {
    if (!is_float(node.types[0].dtype)) return {};
    for (const int side : {0, 1})
      if (const Value v = product_of_table(node, side); v.defined()) return v;
    for (const int side : {0, 1})
      if (const Value v = sum_over_places(node, side); v.defined()) return v;
    return {};
  }

  // dot(take(table, i), w) = take(dot(table, w), i).
  Value product_of_table(const Node& node, int side) {
    const std::optional<Lookup> lookup = lookup_of(rebuild_(node.operands[at(side)]));
    if (!lookup) return {};
    Axes contract = node.attrs.integers(contract_name(side)), batch = node.attrs.integers(batch_name(side));
    if (lookup->has_place(contract) || lookup->has_place(batch)) return {};
    const Axes free = free_axes(node, side);
    const int num_other_free = node.types[0].shape.rank() - static_cast<int>(batch.size() + free.size());
    const auto place = std::ranges::find(free, lookup->axis) - free.begin();
    const int axis = static_cast<int>(batch.size()) + (side == 0 ? 0 : num_other_free) + static_cast<int>(place);
    if (!earns_product(node, side, *lookup) || !begins_its_sum(node, *lookup, axis)) return {};
    for (Axes* axes : {&contract, &batch})
      for (std::int64_t& a : *axes) a = lookup->in_table(a);
    std::vector<Value> operands = rebuild_.operands(node);
    operands[at(side)] = lookup->table;
    Attrs attrs = node.attrs;
    attrs.set(contract_name(side), contract);
    attrs.set(batch_name(side), batch);
    const bool is_invariant = is_table_invariant(node.operands[at(side)]) && invariant(node.operands[at(1 - side)]);
    return of_table(node, builder_.make(*node.op, std::move(operands), std::move(attrs)), *lookup, axis, is_invariant);
  }

  Value of_table(const Node& node, Value table, const Lookup& lookup, int axis, bool is_invariant) {
    is_of_table_[at(node.id)] = true;
    if (is_invariant) invariant_tables_.insert(node.id);
    return look_up(builder_, table, lookup.places, axis);
  }
  // Whether the table in which v, a lookup, finds its rows is the same in every iteration.
  bool is_table_invariant(Value v) const {
    return is_of_table_[at(v.node->id)] ? invariant_tables_.contains(v.node->id)
                                        : is_kind(v, OpKind::Gather) && invariant(operand(v));
  }

  bool earns_product(const Node& node, int side, const Lookup& lookup) const {
    std::int64_t depth = 1, places = num_places(lookup.places.shape(), builder_.options());
    for (const std::int64_t axis : node.attrs.integers(contract_name(side)))
      depth *= node.operands[at(side)].shape()[static_cast<int>(axis)];
    const Value other = node.operands[at(1 - side)];
    if (is_table_invariant(node.operands[at(side)]) && invariant(other)) {
      if (level_.loop) {
        places *= ir::LoopView(*level_.loop).length();
      } else {
        // Bound: made once for many calls, if it does not take more memory than what it is made of.
        const std::int64_t found = std::max<std::int64_t>(lookup.places.shape().size(), 1);
        const std::int64_t made = node.types[0].shape.size() / found * lookup.table_rows();
        if (depth > 0 && made <= lookup.table.shape().size() + other.shape().size()) return true;
      }
    }
    return earns_products_of_table(lookup.table_rows(), places, depth);
  }

  // Whether v, an operand of an elementwise operation, is the same for all places, which are axes [axis, ...) of it.
  static bool repeats(Value v, const Lookup& lookup, int axis) {
    if (!is_kind(v, OpKind::Broadcast)) return false;
    return std::ranges::none_of(v.node->attrs.integers("axes"),
                                [&](std::int64_t a) { return a >= axis && a < axis + lookup.num_places_axes(); });
  }
  bool is_of_table(Value v, const Lookup& lookup, int axis) {
    if (repeats(v, lookup, axis)) return true;
    const Value made = rebuild_.map().find(v);
    if (!made.defined()) return false;
    const std::optional<Lookup> other = lookup_of(made);
    return other && other->places == lookup.places && other->axis == axis;
  }

  // A product goes on from what comes before it in its sum, to which its terms are added one by one: it is one of the table only if that is too, or
  // if it comes first.
  bool begins_its_sum(const Node& dot, const Lookup& lookup, int axis) {
    bool all_of_table = true;
    Value v = result_of(dot);
    while (is_used_once(v)) {
      const ir::Use& use = uses_.of(v)[0];
      const Value sum = result_of(*use.node);
      if (!is_scalar_op(sum, ir::ScalarOp::Add)) break;
      const bool is_there_too = is_of_table(use.node->operands[at(1 - use.operand)], lookup, axis);
      if (use.operand == 1 && !(all_of_table && is_there_too)) return false;
      all_of_table = all_of_table && is_there_too;
      v = sum;
    }
    return true;
  }

  // f(take(a, i), take(b, i), what is the same for all places) = take(f(a, b, ...), i).
  Value function_of_table(const Node& node) {
    std::optional<Lookup> lookup;
    bool follows = false;
    for (const Value& v : node.operands) {
      const std::optional<Lookup> other = lookup_of(rebuild_(v));
      if (!other) continue;
      if (lookup && (!other->same_places(*lookup) || other->table.shape() != lookup->table.shape())) return {};
      if (is_of_table_[at(v.node->id)]) {
        if (!is_used_once(v)) return {};
        follows = true;
      }
      lookup = other;
    }
    if (!follows) return {};
    std::vector<Value> operands;
    bool is_invariant = true;
    for (const Value& v : node.operands) {
      const Value made = rebuild_(v);
      if (lookup_of(made)) {
        operands.push_back(operand(made));
        is_invariant = is_invariant && is_table_invariant(v);
      } else if (repeats(made, *lookup, lookup->axis)) {
        operands.push_back(repeated_along_table(made, *lookup));
        is_invariant = is_invariant && invariant(v);
      } else {
        return {};
      }
    }
    return of_table(node, builder_.make(*node.op, std::move(operands), node.attrs), *lookup, lookup->axis,
                    is_invariant);
  }

  Value repeated_along_table(Value v, const Lookup& lookup) {
    Axes axes = v.node->attrs.integers("axes");
    for (std::int64_t& axis : axes) axis = lookup.in_table(axis);
    return builder_.broadcast(operand(v), lookup.table.shape(), axes);
  }

  // dot(take(table, i), g) over all places = dot(table, g added up by places). A row without a place has no part in it, also where it holds an infinity or a NaN,
  // which zeros would make a NaN.
  Value sum_over_places(const Node& node, int side) {
    const std::optional<Lookup> lookup = lookup_of(rebuild_(node.operands[at(side)]));
    const Axes &contract = node.attrs.integers(contract_name(side)),
               &other = node.attrs.integers(contract_name(1 - side));
    if (!lookup || !node.attrs.integers("lhs_batch").empty() ||
        static_cast<int>(contract.size()) != lookup->num_places_axes())
      return {};
    if (!std::ranges::all_of(contract, [&](std::int64_t axis) { return lookup->is_place(axis); })) return {};
    const std::int64_t rows = lookup->table_rows();
    const std::int64_t width = lookup->table.shape().size() / std::max<std::int64_t>(rows, 1);
    if (!earns_sums_by_place(rows, num_places(lookup->places.shape(), builder_.options()), width)) return {};
    Axes place_axes(contract.size());
    for (std::size_t i = 0; i < contract.size(); ++i) place_axes[at(contract[i] - lookup->axis)] = other[i];
    const Value places = clamped(lookup->places, rows);
    const Value sums = sum_by_place(builder_, rows, places, rebuild_(node.operands[at(1 - side)]), place_axes);
    const Value table = rows_with_places(lookup->table, lookup->axis, places);
    const Axes row = {lookup->axis};
    return side == 0 ? builder_.dot(table, sums, row, {0}) : builder_.dot(sums, table, {0}, row);
  }

  // x with 0 in the rows along an axis that none of the places is.
  Value rows_with_places(Value x, std::int64_t axis, Value places) {
    const ValueType& type = x.type();
    Axes all(at(places.rank()));
    std::iota(all.begin(), all.end(), 0);
    const Value one = builder_.full(1, {type.dtype, places.shape()});
    const Value count = sum_by_place(builder_, type.shape[static_cast<int>(axis)], places, one, all);
    const Value is_found = builder_.make("gt", {count, builder_.full(0, count.type())});
    return builder_.make("select", {builder_.broadcast(is_found, type.shape, {axis}), x, builder_.full(0, type)});
  }

  // A lookup takes the nearest row that is there, a sum by place drops what is not.
  Value clamped(Value places, std::int64_t rows) {
    if (is_kind(places, OpKind::Transpose))
      return builder_.transpose(clamped(operand(places), rows), places.node->attrs.integers("permutation"));
    const auto last = static_cast<double>(rows - 1);
    return builder_.make(
        "min", {builder_.make("max", {places, builder_.full(0, places.type())}), builder_.full(last, places.type())});
  }

  // dot(g, w) added up by places = dot(g added up by places, w), but for rows without a place, which stay 0 also where w holds an infinity or a NaN.
  Value products_of_sums(const Node& node) {
    const std::optional<SumsByPlace> sums = sums_by_place(node, uses_);
    if (!sums || !earns_sums_by_place(sums->rows, num_places(sums->places.shape(), builder_.options()), sums->width))
      return {};
    Value products, rest;  // of all that is added up
    for (const SumsByPlace::Term& term : sums->terms) {
      Value product;
      for (int side = 0; side < 2 && !product.defined(); ++side) product = product_of_sums(node, *sums, term, side);
      const Value more = product.defined() ? product : builder_.transpose(rebuild_(term.value), term.order);
      Value& sum = product.defined() ? products : rest;
      sum = sum.defined() ? builder_.add(sum, more) : more;
    }
    if (!products.defined()) return {};
    products = rows_with_places(products, sums->axis, rebuild_(sums->places));
    if (!rest.defined()) return products;
    std::vector<Value> operands = rebuild_.operands(node);
    operands[2] = rest;
    return builder_.add(products, builder_.make(*node.op, std::move(operands), node.attrs));
  }

  Value product_of_sums(const Node& node, const SumsByPlace& sums, const SumsByPlace::Term& term, int side) {
    const Node& dot = *term.value.node;
    if (dot.op->kind != OpKind::Dot || is_of_table_[at(dot.id)] || !is_used_once(term.value)) return {};
    // The axes of the product by the operand they come from: batch, free of lhs, free of rhs.
    const Axes batch = dot.attrs.integers(batch_name(side)), free = free_axes(dot, side);
    const auto num_batch = static_cast<std::int64_t>(batch.size());
    const std::int64_t rank = dot.types[0].shape.rank(), num_free = static_cast<std::int64_t>(free.size());
    const std::int64_t first = side == 0 ? num_batch : rank - num_free;
    Axes place_axes;  // of the operand
    for (const std::int64_t axis : sums.place_axes(term)) {
      if (axis < first || axis >= first + num_free) return {};
      place_axes.push_back(free[at(axis - first)]);
    }
    const Value factor = rebuild_(dot.operands[at(side)]);
    const Axes rest = ir::other_axes(factor.rank(), place_axes);
    std::vector<Value> operands = rebuild_.operands(dot);
    operands[at(side)] = sum_by_place(builder_, sums.rows, rebuild_(sums.places), factor, place_axes);
    Attrs attrs = dot.attrs;
    for (const char* name : {contract_name(side), batch_name(side)}) {
      Axes axes = dot.attrs.integers(name);
      for (std::int64_t& axis : axes) axis = 1 + (std::ranges::find(rest, axis) - rest.begin());
      attrs.set(name, axes);
    }
    const Value made = builder_.make(*dot.op, std::move(operands), std::move(attrs));
    // Its axes, by those of the old product; -1 for the rows.
    Axes from;
    for (std::int64_t axis = 0; axis < first; ++axis) from.push_back(axis);
    from.push_back(-1);
    for (std::int64_t i = 0; i < num_free; ++i)
      if (std::ranges::find(place_axes, free[at(i)]) == place_axes.end()) from.push_back(first + i);
    for (std::int64_t axis = first + num_free; axis < rank; ++axis) from.push_back(axis);
    Axes order;
    for (int i = 0; i < node.types[0].shape.rank(); ++i) {
      const std::int64_t wanted = i == sums.axis  ? -1
                                  : i < sums.axis ? term.order[at(i)]
                                                  : term.order[at(i - 1 + sums.places.rank())];
      order.push_back(std::ranges::find(from, wanted) - from.begin());
    }
    return builder_.transpose(made, order);
  }

  const Graph& graph_;
  const Level& level_;
  ir::ValueIndex index_;
  ir::Uses uses_;
  ir::Rebuild rebuild_;
  Builder builder_;
  std::vector<bool> is_of_table_;   // by node of the old graph: its value is a lookup in a table made here
  std::set<int> invariant_tables_;  // of these, by id
};

// Products that a loop emits to be added up by places.
class EmittedProducts {
 public:
  EmittedProducts(const Node& loop, const ir::Uses& outer_uses, ir::Rebuild& outer, Builder& builder)
      : loop_(loop),
        outer_uses_(outer_uses),
        outer_(outer),
        builder_(builder),
        invariant_(invariant_values(loop_.body(), loop_)),
        all_steps_(loop_, invariant_, outer, builder) {}

  bool run() {
    // A loop that may end early emits zeros where it did not run.
    if (loop_.until() || loop_.has_trip()) return false;
    std::vector<Product> products;
    for (int y = 0; y < loop_.num_ys(); ++y)
      if (const std::optional<Product> p = product_of(y)) products.push_back(*p);
    if (products.empty()) return false;
    Node* copy = outer_.copy(loop_.node());
    for (const Product& p : products) outer_.map().set(loop_.ys_result(p.y), of_all_steps(p, *copy));
    return true;
  }

 private:
  struct Product {
    int y;
    const Node* dot;
    int side;                // of what varies
    int factor;              // the ys that it is
    Value slice;             // of the product, undefined where all of it is emitted
    std::int64_t axis = -1;  // of the other operand that is sliced
  };

  std::optional<Product> product_of(int y) const {
    Product p{y, nullptr, 0, -1, {}};
    Value v = loop_.y_out(y);
    if (is_kind(v, OpKind::Slice)) {
      p.slice = v;
      v = operand(v);
    }
    if (!is_kind(v, OpKind::Dot) || !v.node->attrs.integers("lhs_batch").empty()) return {};
    p.dot = v.node;
    for (; p.side < 2; ++p.side)
      if (all_steps_.is_found_outside(operand(v, 1 - p.side)) && !all_steps_.is_invariant(operand(v, p.side))) break;
    if (p.side == 2) return {};
    for (int other = 0; other < loop_.num_ys() && p.factor < 0; ++other)
      if (loop_.y_out(other) == operand(v, p.side)) p.factor = other;
    if (p.factor < 0) return {};
    const Axes fixed = free_axes(*p.dot, 1 - p.side), varied = free_axes(*p.dot, p.side);
    if (p.slice.defined()) {
      const std::optional<int> axis = sliced_axis(*p.slice.node);
      const std::int64_t first = p.side == 0 ? v.rank() - static_cast<std::int64_t>(fixed.size()) : 0;
      if (!axis || *axis < first || *axis >= first + static_cast<std::int64_t>(fixed.size())) return {};
      p.axis = fixed[at(*axis - first)];
    }
    return is_added_up(y, p.side == 0 ? 0 : static_cast<std::int64_t>(fixed.size()), varied.size()) ? std::optional(p)
                                                                                                    : std::nullopt;
  }

  // Whether what is emitted is only added up by places, which are the steps and the `count` axes of a step's value from `first` on.
  bool is_added_up(int y, std::int64_t first, std::size_t count) const {
    const Value emitted = loop_.ys_result(y);
    const Node* user = nullptr;
    while (!user || user->op->kind == OpKind::Transpose || user->op->kind == OpKind::Elementwise) {
      const Value v = user ? result_of(*user) : emitted;
      if (outer_uses_.count(v) != 1 || outer_uses_.is_output(v)) return false;
      user = outer_uses_.of(v)[0].node;
    }
    const std::optional<SumsByPlace> sums = sums_by_place(*user, outer_uses_);
    if (!sums || !earns_sums_by_place(sums->rows, num_places(sums->places.shape(), builder_.options()), sums->width))
      return false;
    Axes expected = {0};
    for (std::size_t i = 0; i < count; ++i) expected.push_back(1 + first + static_cast<std::int64_t>(i));
    return std::ranges::any_of(sums->terms, [&](const SumsByPlace::Term& term) {
      Axes axes = sums->place_axes(term);
      std::ranges::sort(axes);
      return term.value == emitted && axes == expected;
    });
  }

  Value of_all_steps(const Product& p, Node& copy) {
    const Value factor = copy.result(loop_.num_carry() + p.factor);
    Value fixed = all_steps_.outside(p.dot->operands[at(1 - p.side)]);
    if (p.slice.defined()) {
      const Attrs& attrs = p.slice.node->attrs;
      const int axis = *sliced_axis(*p.slice.node);
      fixed = builder_.narrow(fixed, static_cast<int>(p.axis), attrs.integers("start")[at(axis)],
                              attrs.integers("stop")[at(axis)]);
    }
    return dot_of_all_steps(builder_, *p.dot, p.side, factor, fixed);
  }

  ir::LoopView loop_;
  const ir::Uses& outer_uses_;
  ir::Rebuild& outer_;
  Builder& builder_;
  std::vector<bool> invariant_;
  AllSteps all_steps_;
};

std::shared_ptr<const Graph> rewrite(const Graph& graph, const Level& level, const PassOptions& options) {
  const ir::Uses uses(graph);
  const std::shared_ptr<const Graph> emitted = rewrite_loops(graph, [&](const Node& loop, ir::Rebuild& outer) {
    Builder builder(outer.to(), options);
    return EmittedProducts(loop, uses, outer, builder).run();
  });
  if (emitted) return emitted;
  return LookupProducts(graph, level, options).run();
}

}  // namespace

Pass lookup_products() {
  return {"lookup_products", "products with looked-up rows are made once for each row of the table", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(
                graph, [&](const Graph& g, const Level& level) { return rewrite(g, level, options); }, options.bound);
          }};
}

}  // namespace hotloop::passes
