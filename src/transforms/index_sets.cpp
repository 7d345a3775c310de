#include "transforms/index_sets.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/axis_links.h"
#include "ir/resize.h"
#include "ops/rules/walk.h"
#include "transforms/axis_flow.h"

namespace hotloop::ir {
namespace {

struct OutOfSteps {};

// Of a value whose numbers are looked at.
constexpr std::int64_t most_known_elements = 1 << 18;

// Sets of input elements by number; equal sets have equal numbers, 0 is the empty set.
class SetTable {
 public:
  explicit SetTable(std::int64_t max_steps) : left_(max_steps) { intern({}); }

  void spend(std::int64_t steps) {
    left_ -= steps;
    if (left_ < 0) throw OutOfSteps{};
  }
  int singleton(int element) { return intern({element}); }
  int unite(int a, int b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    const auto key = (static_cast<std::uint64_t>(std::min(a, b)) << 32) | static_cast<std::uint32_t>(std::max(a, b));
    if (const auto it = unions_.find(key); it != unions_.end()) return it->second;
    std::vector<int> both;
    std::ranges::set_union(*sets_[at(a)], *sets_[at(b)], std::back_inserter(both));
    spend(static_cast<std::int64_t>(both.size()));
    return unions_[key] = intern(std::move(both));
  }
  const std::vector<int>& operator[](int set) const { return *sets_[at(set)]; }

 private:
  int intern(std::vector<int> elements) {
    const auto [it, fresh] = numbers_.try_emplace(std::move(elements), static_cast<int>(sets_.size()));
    if (fresh) sets_.push_back(&it->first);
    return it->second;
  }

  std::int64_t left_;
  std::map<std::vector<int>, int> numbers_;
  std::vector<const std::vector<int>*> sets_;
  std::unordered_map<std::uint64_t, int> unions_;
};

// A value: the number of the set of each element, as an array of i32 in which aligned axes have extent 1. `known` is the
// value itself, where it is known.
struct Sets {
  AxisFlow flow;
  Array ids;
  Array known;
};

std::int32_t* ids_of(Array& a) { return a.data<std::int32_t>().data(); }
std::span<const std::int32_t> ids_of(const Array& a) { return a.data<std::int32_t>(); }

// One op on arrays.
Array evaluate_op(const OpDef& op, const std::vector<Array>& operands, const Attrs& attrs) {
  std::vector<ValueType> types;
  for (const Array& a : operands) types.push_back(a.type());
  const auto graph = trace(
      [&](std::span<const Value> in) {
        return std::vector{current_graph().append(op, {in.begin(), in.end()}, attrs)->result()};
      },
      types);
  return evaluate(*graph, operands)[0];
}

class Interpreter {
 public:
  Interpreter(int input_rank, const std::vector<std::pair<int, int>>& paired, std::int64_t max_steps)
      : table_(max_steps) {
    aligned_.resize(at(input_rank));
    for (const auto& [output_axis, input_axis] : paired) aligned_[at(input_axis)] = true;
  }

  SetTable& table() { return table_; }

  Sets input(const ValueType& type) {
    Sets x{flow_of_input(type.shape.rank()), {}, {}};
    x.ids = Array(DType::I32, small_shape(type.shape, x.flow));
    table_.spend(x.ids.size());
    for (std::int64_t i = 0; i < x.ids.size(); ++i) ids_of(x.ids)[i] = table_.singleton(static_cast<int>(i));
    return x;
  }

  std::vector<Sets> run(const Graph& graph, std::span<const Sets> inputs, int depth) {
    std::map<std::pair<const Node*, int>, Sets> values;
    for (std::size_t i = 0; i < inputs.size(); ++i) values[{graph.inputs()[i].node, 0}] = inputs[i];
    for (const auto& node : graph.nodes()) {
      if (is(*node, OpKind::Input)) continue;
      table_.spend(20);
      std::vector<Sets> operands;
      for (const Value& v : node->operands) operands.push_back(values.at({v.node, v.index}));
      std::vector<Sets> results = node_results(*node, operands, depth);
      results.resize(node->types.size());
      for (std::size_t i = 0; i < results.size(); ++i)
        values[{node.get(), static_cast<int>(i)}] = std::move(results[i]);
    }
    std::vector<Sets> outputs;
    for (const Value& v : graph.outputs()) outputs.push_back(values.at({v.node, v.index}));
    return outputs;
  }

 private:
  // `shape` with extent 1 along the axes that are aligned with paired ones of the input.
  Shape small_shape(Shape shape, const AxisFlow& flow) const {
    for (std::size_t i = 0; i < aligned_.size() && i < flow.axes.size(); ++i)
      if (aligned_[i] && flow.axes[i] >= 0) shape[flow.axes[i]] = 1;
    return shape;
  }
  // A value that mixes a paired axis: it cannot be on the way to the output, which does not.
  bool off_the_way(const AxisFlow& flow) const {
    for (std::size_t i = 0; i < aligned_.size() && i < flow.axes.size(); ++i)
      if (aligned_[i] && flow.axes[i] == AxisFlow::mixed) return true;
    return false;
  }
  static bool depends(const Sets& s) { return s.flow.depends; }
  Array empty(const Shape& shape) {
    table_.spend(shape.size());
    return Array::zeros(DType::I32, shape);
  }
  // The sets of an operand in a given shape: empty ones for what does not depend.
  Array ids_in(const Sets& s, const Shape& shape) { return depends(s) && s.ids.defined() ? s.ids : empty(shape); }

  std::vector<Sets> node_results(const Node& node, const std::vector<Sets>& operands, int depth) {
    const bool any = std::ranges::any_of(operands, depends);
    if (!any) return {known_result(node, operands)};
    if (is(node, OpKind::Loop)) return loop(LoopView(node), operands, depth);
    if (is(node, OpKind::Call)) return call(node, operands, depth);
    std::vector<AxisFlow> flows;
    for (const Sets& s : operands) flows.push_back(s.flow);
    Sets result{flow_through(node, flows), {}, {}};
    if (!result.flow.depends || off_the_way(result.flow)) return {result};
    for (const Sets& s : operands)
      if (depends(s) && off_the_way(s.flow)) return {result};
    const Shape shape = small_shape(node.types[0].shape, result.flow);
    table_.spend(shape.size());
    result.ids = ids_through(node, operands, shape);
    HOTLOOP_CHECK(result.ids.shape() == shape, "index sets of " + node.op->name + " have another shape");
    return {result};
  }

  Sets known_result(const Node& node, const std::vector<Sets>& operands) {
    const bool from_nothing = is(node, OpKind::Constant) || is(node, OpKind::Iota);
    const bool known = from_nothing || (!operands.empty() && node.regions.empty() && !is(node, OpKind::Extent) &&
                                        std::ranges::all_of(operands, [](const Sets& s) { return s.known.defined(); }));
    if (!known || node.types.size() != 1 || node.types[0].shape.size() > most_known_elements) return {};
    table_.spend(node.types[0].shape.size() + (is(node, OpKind::Dot) ? most_known_elements / 16 : 0));
    std::vector<Array> arrays;
    for (const Sets& s : operands) arrays.push_back(s.known);
    return {{}, {}, evaluate_op(*node.op, arrays, node.attrs)};
  }

  // What is known of an operand, in the small shape of a result it is combined with; undefined where it differs along an aligned
  // axis.
  static Array known_in(const Array& known, const Shape& small) {
    if (!known.defined() || known.shape() == small) return known;
    const auto strides = strides_of(known.shape());
    Array result = rearranged(known, small, [&](const Index& index) { return flat_index(index, strides); });
    bool uniform = true;
    const auto small_strides = strides_of(small);
    std::int64_t flat = 0;
    for_each_index(known.shape(), [&](const Index& index) {
      std::int64_t from = 0;
      for (std::size_t i = 0; i < index.size(); ++i)
        if (small[static_cast<int>(i)] != 1) from += index[i] * small_strides[i];
      uniform = uniform && known.at(flat++) == result.at(from);
    });
    return uniform ? result : Array{};
  }

  Array ids_through(const Node& node, const std::vector<Sets>& operands, const Shape& shape) {
    switch (node.op->kind) {
      case OpKind::Elementwise: return elementwise(node, operands, shape);
      case OpKind::Reduce: return united(operands[0].ids, node.attrs.integers("axes"), false);
      case OpKind::Dot: return dot(node, operands, shape);
      case OpKind::Gather: return gather(node, operands, shape);
      case OpKind::ScatterAdd: return scatter_add(node, operands, shape);
      case OpKind::DynamicSlice: return dynamic_slice(node, operands, shape);
      case OpKind::DynamicUpdate: return dynamic_update(node, operands, shape);
      default: return moved(node, operands, shape);
    }
  }

  Array elementwise(const Node& node, const std::vector<Sets>& operands, const Shape& shape) {
    Array out = empty(shape);
    if (node.op->scalar == ScalarOp::Select) {
      if (const Array condition = known_in(operands[0].known, shape); condition.defined()) {
        const Array a = ids_in(operands[1], shape), b = ids_in(operands[2], shape);
        for (std::int64_t i = 0; i < out.size(); ++i) ids_of(out)[i] = ids_of(condition.at(i) != 0 ? a : b)[at(i)];
        return out;
      }
    }
    const bool product = node.op->scalar == ScalarOp::Mul, quotient = node.op->scalar == ScalarOp::Div;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (!depends(operands[k])) continue;
      // A factor or numerator that is zero makes the derivative with respect to the other operand zero.
      Array factor;
      if (operands.size() == 2 && (product || (quotient && k == 1))) factor = known_in(operands[1 - k].known, shape);
      for (std::int64_t i = 0; i < out.size(); ++i)
        if (!factor.defined() || factor.at(i) != 0)
          ids_of(out)[i] = table_.unite(ids_of(out)[i], ids_of(operands[k].ids)[at(i)]);
    }
    return out;
  }

  // The union over axes, which disappear or keep extent 1.
  Array united(const Array& ids, const std::vector<std::int64_t>& axes, bool keep) {
    Shape kept = ids.shape(), gone;
    for (const std::int64_t a : axes) kept[static_cast<int>(a)] = 1;
    Array out = empty(kept);
    const auto strides = strides_of(kept);
    table_.spend(ids.size());
    std::int64_t flat = 0;
    for_each_index(ids.shape(), [&](const Index& index) {
      std::int64_t to = 0;
      for (std::size_t i = 0; i < index.size(); ++i)
        if (kept[static_cast<int>(i)] != 1) to += index[i] * strides[i];
      ids_of(out)[to] = table_.unite(ids_of(out)[to], ids_of(ids)[at(flat++)]);
    });
    if (keep) return out;
    for (int i = 0; i < kept.rank(); ++i)
      if (std::ranges::find(axes, i) == axes.end()) gone.push_back(kept[i]);
    return out.reshaped(gone);
  }

  // `ids` with some axes of extent 1 repeated.
  Array repeated(const Array& ids, const Shape& shape) {
    if (ids.shape() == shape) return ids;
    table_.spend(shape.size());
    const auto strides = strides_of(ids.shape());
    return rearranged(ids, shape, [&](const Index& index) {
      std::int64_t from = 0;
      for (std::size_t i = 0; i < index.size(); ++i)
        if (ids.shape()[static_cast<int>(i)] != 1) from += index[i] * strides[i];
      return from;
    });
  }

  Array dot(const Node& node, const std::vector<Sets>& operands, const Shape& shape) {
    using Axes = std::vector<std::int64_t>;
    const Axes* contract[2] = {&node.attrs.integers("lhs_contract"), &node.attrs.integers("rhs_contract")};
    // For each axis of an operand, the result's axis it is, or -1 - c for contracted axis c.
    std::vector<int> place[2];
    const int rank = node.types[0].shape.rank();
    for (int k = 0; k < 2; ++k) place[k].resize(at(node.operands[at(k)].rank()));
    for (const AxisLink& link : axis_links(node))
      place[link.operand][at(link.axis)] = link.to < rank ? link.to : rank - 1 - link.to;
    Array out = empty(shape);
    const auto out_strides = strides_of(shape);
    for (int k = 0; k < 2; ++k) {
      if (!depends(operands[at(k)])) continue;
      const Array& ids = operands[at(k)].ids;
      const Array factor = zeros_in(operands[at(1 - k)].known, place[1 - k], shape);
      if (!factor.defined()) {
        // Every element of a row meets every column: united once, then repeated.
        const Array rows = united(ids, *contract[k], true);
        const auto strides = strides_of(rows.shape());
        std::int64_t flat = 0;
        for_each_index(shape, [&](const Index& index) {
          std::int64_t from = 0;
          for (std::size_t i = 0; i < place[k].size(); ++i)
            if (place[k][i] >= 0 && rows.shape()[static_cast<int>(i)] != 1) from += index[at(place[k][i])] * strides[i];
          ids_of(out)[flat] = table_.unite(ids_of(out)[flat], ids_of(rows)[at(from)]);
          ++flat;
        });
        continue;
      }
      // Column by column of what is not zero.
      Shape contracted;
      for (const std::int64_t axis : *contract[k]) contracted.push_back(ids.shape()[static_cast<int>(axis)]);
      const auto strides = strides_of(ids.shape()), factor_strides = strides_of(factor.shape());
      table_.spend(shape.size() * contracted.size());
      std::int64_t flat = 0;
      for_each_index(shape, [&](const Index& index) {
        for_each_index(contracted, [&](const Index& sum) {
          const auto flat_of = [&](const std::vector<int>& places, const Shape& of, const auto& of_strides) {
            std::int64_t f = 0;
            for (std::size_t i = 0; i < places.size(); ++i)
              if (of[static_cast<int>(i)] != 1)
                f += (places[i] >= 0 ? index[at(places[i])] : sum[at(-1 - places[i])]) * of_strides[i];
            return f;
          };
          if (factor.at(flat_of(place[1 - k], factor.shape(), factor_strides)) == 0) return;
          const int set = ids_of(ids)[at(flat_of(place[k], ids.shape(), strides))];
          ids_of(out)[flat] = table_.unite(ids_of(out)[flat], set);
        });
        ++flat;
      });
    }
    return out;
  }

  // A known factor of a dot if it holds zeros, in the shape in which it meets a small result.
  static Array zeros_in(const Array& known, const std::vector<int>& place, const Shape& small) {
    if (!known.defined()) return {};
    Shape shape = known.shape();
    for (std::size_t i = 0; i < place.size(); ++i)
      if (place[i] >= 0 && small[place[i]] == 1) shape[static_cast<int>(i)] = 1;
    const Array here = known_in(known, shape);
    for (std::int64_t i = 0; here.defined() && i < here.size(); ++i)
      if (here.at(i) == 0) return here;
    return {};
  }

  Array gather(const Node& node, const std::vector<Sets>& operands, const Shape& shape) {
    const int lanes = ir::num_lane_axes(node.attrs);
    if (operands[1].known.defined() && lanes == 0)
      return evaluate_op(*node.op, {operands[0].ids, operands[1].known}, node.attrs);
    const std::int64_t axis = node.attrs.integer("axis");
    const Array any = united(operands[0].ids, {axis}, true);
    Shape spread = any.shape().without(static_cast<int>(axis));
    for (int i = lanes; i < node.operands[1].rank(); ++i) spread = spread.with_inserted(static_cast<int>(axis), 1);
    return repeated(any.reshaped(spread), shape);
  }

  Array scatter_add(const Node& node, const std::vector<Sets>& operands, const Shape& shape) {
    const int axis = static_cast<int>(node.attrs.integer("axis"));
    const int lanes = ir::num_lane_axes(node.attrs), index_rank = node.operands[1].rank() - lanes;
    Array out = ids_in(operands[0], shape).clone();
    if (!depends(operands[2])) return out;
    const Array& updates = operands[2].ids;
    const Array indices = lanes == 0 ? operands[1].known : Array{};
    const auto strides = strides_of(shape);
    table_.spend(updates.size());
    std::int64_t flat = 0;
    for_each_index(updates.shape(), [&](const Index& index) {
      const int set = ids_of(updates)[at(flat++)];
      Index to(index.begin(), index.begin() + axis);
      std::int64_t position = 0;
      for (int i = 0; i < index_rank; ++i)
        position = position * node.operands[1].shape()[lanes + i] + index[at(axis + i)];
      to.push_back(0);
      to.insert(to.end(), index.begin() + axis + index_rank, index.end());
      const std::int64_t base = flat_index(to, strides), extent = shape[axis];
      const auto first = indices.defined() ? static_cast<std::int64_t>(indices.at(position)) : 0;
      const auto last = indices.defined() ? first : extent - 1;
      table_.spend(last - first);
      for (std::int64_t i = std::max<std::int64_t>(first, 0); i <= last && i < extent; ++i) {
        const std::int64_t element = base + i * strides[at(axis)];
        ids_of(out)[element] = table_.unite(ids_of(out)[element], set);
      }
    });
    return out;
  }

  // Where a dynamic_slice or dynamic_update begins along an axis, if it is known and the same everywhere.
  static Array known_start(const Node& node, const std::vector<Sets>& operands, std::size_t first, int axis) {
    const int lanes = node.operands[first].rank();
    return lanes == 0 ? operands[first + at(axis)].known : Array{};
  }

  Array dynamic_slice(const Node& node, const std::vector<Sets>& operands, const Shape& shape) {
    Array ids = operands[0].ids;
    for (int i = 0; i < shape.rank(); ++i) {
      if (ids.shape()[i] == shape[i]) continue;
      const Array start = known_start(node, operands, 1, i);
      if (!start.defined()) {
        ids = united(ids, {i}, true);
        continue;
      }
      const auto first = std::clamp<std::int64_t>(static_cast<std::int64_t>(start.at(0)), 0, ids.shape()[i] - shape[i]);
      Shape part = ids.shape();
      part[i] = shape[i];
      const auto strides = strides_of(ids.shape());
      ids = rearranged(ids, part,
                       [&](const Index& index) { return flat_index(index, strides) + first * strides[at(i)]; });
    }
    return repeated(ids, shape);
  }

  Array dynamic_update(const Node& node, const std::vector<Sets>& operands, const Shape& shape) {
    Array out = ids_in(operands[0], shape).clone();
    Shape part = node.operands[1].shape();
    std::vector<std::int64_t> starts, unknown;
    for (int i = 0; i < shape.rank(); ++i) {
      if (part[i] == node.operands[0].shape()[i]) {
        part[i] = shape[i];
        starts.push_back(0);
        continue;
      }
      const Array start = known_start(node, operands, 2, i);
      if (!start.defined()) unknown.push_back(i);
      starts.push_back(start.defined()
                           ? std::clamp<std::int64_t>(static_cast<std::int64_t>(start.at(0)), 0, shape[i] - part[i])
                           : 0);
    }
    Array update = ids_in(operands[1], part);
    const bool replaces = unknown.empty();
    if (!replaces) {
      // It may land anywhere along these axes, or not.
      update = united(update, unknown, true);
      for (const std::int64_t i : unknown) part[static_cast<int>(i)] = shape[static_cast<int>(i)];
      update = repeated(update, part);
    }
    const auto strides = strides_of(shape);
    std::int64_t flat = 0;
    for_each_index(part, [&](const Index& index) {
      std::int64_t to = 0;
      for (std::size_t i = 0; i < index.size(); ++i) to += (index[i] + starts[i]) * strides[i];
      const int set = ids_of(update)[at(flat++)];
      ids_of(out)[to] = replaces ? set : table_.unite(ids_of(out)[to], set);
    });
    return out;
  }

  // Movement moves the numbers of sets as it would move the values.
  Array moved(const Node& node, const std::vector<Sets>& operands, const Shape& shape) {
    std::vector<Shape> small;
    for (const Value& v : node.operands) small.push_back(v.shape());
    for (const AxisLink& link : axis_links(node))
      if (link.use == AxisUse::Same && shape[link.to] != node.types[0].shape[link.to])
        small[at(link.operand)][link.axis] = 1;
    std::vector<Array> arrays;
    for (std::size_t k = 0; k < operands.size(); ++k) arrays.push_back(ids_in(operands[k], small[k]));
    return evaluate_op(*node.op, arrays, resized_attrs(node, shape));
  }

  std::vector<Sets> call(const Node& node, const std::vector<Sets>& operands, int depth) {
    if (is_plain_call(node)) return run(*node.regions[0], operands, depth);
    // A derivative rule of the user's: every number that is a float may depend on everything.
    int all = 0;
    AxisFlow flow;
    for (const Sets& s : operands) {
      if (!depends(s)) continue;
      flow = {true, std::vector<int>(s.flow.axes.size(), AxisFlow::mixed)};
      for (std::int64_t i = 0; s.ids.defined() && i < s.ids.size(); ++i) all = table_.unite(all, ids_of(s.ids)[at(i)]);
    }
    std::vector<Sets> results;
    for (const ValueType& type : node.types) {
      if (!is_float(type.dtype)) {
        results.emplace_back();
        continue;
      }
      Sets s{flow, {}, {}};
      if (!off_the_way(flow)) {
        s.ids = empty(type.shape);
        std::ranges::fill(s.ids.data<std::int32_t>(), all);
      }
      results.push_back(std::move(s));
    }
    return results;
  }

  // Both sets of each element; where the two disagree about axes the value is off the way.
  Sets joined(const Sets& a, const Sets& b) {
    if (!depends(a) && !depends(b)) return {};
    Sets s{join(a.flow, b.flow), {}, {}};
    if (off_the_way(s.flow)) return s;
    if (!depends(a) || !depends(b)) {
      s.ids = depends(a) ? a.ids : b.ids;
      return s;
    }
    if (!a.ids.defined() || !b.ids.defined()) return s;
    s.ids = a.ids.clone();
    table_.spend(s.ids.size());
    for (std::int64_t i = 0; i < s.ids.size(); ++i)
      ids_of(s.ids)[i] = table_.unite(ids_of(s.ids)[i], ids_of(b.ids)[at(i)]);
    return s;
  }

  Sets element(const Sets& xs, std::int64_t t, int depth) {
    const auto row = [&](const Array& a, std::int64_t i) {
      if (!a.defined()) return a;
      Shape rest = a.shape().without(0);
      const std::int64_t size = rest.size();
      return rearranged(a, rest, [&, flat = std::int64_t{0}](const Index&) mutable { return i * size + flat++; });
    };
    Sets s{flow_of_element(xs.flow, depth), {}, row(xs.known, t)};
    if (depends(xs) && xs.ids.defined()) {
      table_.spend(xs.ids.size() / std::max<std::int64_t>(xs.ids.shape()[0], 1));
      s.ids = row(xs.ids, xs.ids.shape()[0] == 1 ? 0 : t);
    }
    return s;
  }

  std::vector<Sets> loop(const LoopView& view, const std::vector<Sets>& operands, int depth) {
    const std::size_t nc = at(view.num_carry()), nx = at(view.num_xs()), nk = at(view.num_consts());
    // Without knowing how many iterations run, what a carry may be grows from one to the next.
    const bool may_end = view.until() != nullptr || view.has_trip();
    std::vector<Sets> carry(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(nc));
    if (may_end)
      for (Sets& s : carry) s.known = {};
    std::vector<std::vector<Sets>> ys(at(view.num_ys()));
    for (std::int64_t k = 0; k < view.length(); ++k) {
      const std::int64_t t = view.reverse() ? view.length() - 1 - k : k;
      std::vector<Sets> inputs = carry;
      for (std::size_t i = 0; i < nx; ++i) inputs.push_back(element(operands[nc + i], t, depth));
      for (std::size_t i = 0; i < nk; ++i) inputs.push_back(operands[nc + nx + i]);
      std::vector<Sets> outputs = run(view.body(), inputs, depth + 1);
      for (std::size_t i = 0; i < nc; ++i) {
        Sets next = outputs[i];
        next.flow = flow_of_carry(next.flow, depth);
        if (off_the_way(next.flow)) next.ids = {};
        if (may_end) next = joined(carry[i], next);
        carry[i] = next;
      }
      for (std::size_t i = 0; i < ys.size(); ++i) ys[i].push_back(outputs[nc + i]);
    }
    std::vector<Sets> results = carry;
    if (view.reverse())
      for (auto& y : ys) std::ranges::reverse(y);
    for (std::size_t i = 0; i < ys.size(); ++i)
      results.push_back(stacked(ys[i], view.ys_result(static_cast<int>(i)).shape(), depth));
    results.emplace_back();  // the count
    return results;
  }

  Sets stacked(const std::vector<Sets>& rows, const Shape& shape, int depth) {
    Sets s;
    for (const Sets& row : rows) s.flow = join(s.flow, flow_of_stack(row.flow, depth));
    if (!depends(s) || off_the_way(s.flow)) return s;
    const Shape small = small_shape(shape, s.flow);
    s.ids = empty(small);
    const std::int64_t size = small.size() / std::max<std::int64_t>(small[0], 1);
    for (std::size_t t = 0; t < rows.size(); ++t) {
      if (!depends(rows[t]) || !rows[t].ids.defined()) continue;
      const std::int64_t first = small[0] == 1 ? 0 : static_cast<std::int64_t>(t) * size;
      for (std::int64_t i = 0; i < size; ++i)
        ids_of(s.ids)[first + i] = table_.unite(ids_of(s.ids)[first + i], ids_of(rows[t].ids)[at(i)]);
    }
    return s;
  }

  SetTable table_;
  std::vector<bool> aligned_;  // of the input's axes: paired
};

}  // namespace

FoundPattern find_pattern(const Graph& graph, int input, const std::vector<std::pair<int, int>>& paired,
                          std::int64_t max_steps, std::span<const Array> known) {
  using enum FoundPattern::Outcome;
  const Value x = graph.inputs()[at(input)];
  try {
    Interpreter interpreter(x.rank(), paired, max_steps);
    std::vector<Sets> inputs(graph.inputs().size());
    for (std::size_t i = 0; i < known.size(); ++i)
      if (known[i].defined() && known[i].size() <= most_known_elements) inputs[i].known = known[i];
    inputs[at(input)] = interpreter.input(x.type());
    const std::int64_t num_columns = inputs[at(input)].ids.size();
    const Sets y = interpreter.run(graph, inputs, 0)[0];
    Shape shape = graph.outputs()[0].shape();
    for (const auto& [output_axis, input_axis] : paired) shape[output_axis] = 1;
    const std::int64_t num_rows = shape.size();
    const bool depends = y.flow.depends;
    HOTLOOP_CHECK(!depends || (y.ids.defined() && y.ids.shape() == shape), "index sets did not reach the output");
    const auto row = [&](std::int64_t i) -> const std::vector<int>& {
      return interpreter.table()[depends ? ids_of(y.ids)[at(i)] : 0];
    };
    std::int64_t elements = 0;
    for (std::int64_t i = 0; i < num_rows; ++i) elements += static_cast<std::int64_t>(row(i).size());
    if (elements == num_rows * num_columns) return {Full, {}};
    interpreter.table().spend(elements);
    FoundPattern found{Sparse, {}};
    found.pattern.num_columns = num_columns;
    for (std::int64_t i = 0; i < num_rows; ++i) found.pattern.add_row(row(i));
    return found;
  } catch (const OutOfSteps&) {
    return {TooManySteps, {}};
  }
}

}  // namespace hotloop::ir
