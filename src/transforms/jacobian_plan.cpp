#include "transforms/jacobian_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/interpreters.h"
#include "ir/region.h"
#include "ops/composed/linear_call.h"
#include "ops/rules/arguments.h"
#include "transforms/axis_flow.h"
#include "transforms/index_sets.h"
#include "transforms/row_program.h"

namespace hotloop::ir {
namespace {

using Axes = std::vector<std::int64_t>;

double flops_of(const Graph& graph) {
  const auto live = eliminate_dead(graph);
  double flops = 0;
  for (const auto& node : (live ? *live : graph).nodes())
    if (!is(*node, OpKind::Input)) flops += estimate_flops(*node);
  return flops;
}

constexpr double infinite = std::numeric_limits<double>::infinity();

// What one more pass of a kind costs, and the work that all share. Passes of a kind that the function refuses cost without end.
struct Costs {
  double shared, forward, reverse;

  double of(std::int64_t forward_passes, std::int64_t reverse_passes) const {
    double all = shared;
    if (forward_passes > 0) all += forward * static_cast<double>(forward_passes);
    if (reverse_passes > 0) all += reverse * static_cast<double>(reverse_passes);
    return all;
  }
};

// What a pass costs that `trace_pass` makes beside the value; who takes such passes all the same is told why there are none.
template <class F> double flops_of_pass(double shared, F&& trace_pass) {
  try {
    const std::shared_ptr<const Graph> graph = trace_pass(), live = eliminate_dead(*graph);
    if (find_reverse_call(live ? *live : *graph)) return infinite;
    return std::max(flops_of(*graph) - shared, 1.0);
  } catch (const UserError&) {
    return infinite;
  }
}

Costs estimate_costs(const Graph& graph, int input, bool with_reverse) {
  const Function fn = [&](std::span<const Value> v) { return inline_graph(graph, v); };
  std::vector<ValueType> types = graph.input_types();
  const std::size_t n = types.size();
  const ValueType x = types[at(input)], y = graph.outputs()[0].type();
  types.push_back(x);
  const auto forward = [&](std::span<const Value> v) {
    std::vector<Value> tangents(n);
    tangents[at(input)] = v[n];
    // With the value, so that what a pass costs beyond it is a difference: the derivative alone does not need all of it.
    const auto [values, derivatives] = jvp(fn, v.first(n), tangents);
    return std::vector{values[0], or_zeros(derivatives[0], y)};
  };
  const double shared = flops_of(graph);
  Costs costs{shared, flops_of_pass(shared, [&] { return trace(forward, types); }), infinite};
  if (!with_reverse) return costs;
  types[n] = y;
  const auto reverse = [&](std::span<const Value> v) {
    const Function of_x = [&](std::span<const Value> at_x) {
      std::vector<Value> all(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n));
      all[at(input)] = at_x[0];
      return fn(all);
    };
    const auto [values, pull_back] = vjp(of_x, v.subspan(at(input), 1));
    return std::vector{values[0], pull_back(v.subspan(n, 1))[0]};
  };
  costs.reverse = flops_of_pass(shared, [&] { return trace(reverse, types); });
  return costs;
}

// The value and so many reverse passes of each row, what no row needs for itself done once.
double estimate_row_flops(const RowProgram& program, std::int64_t num_passes) {
  std::vector<ValueType> types{program.one->inputs()[0].type()};
  for (const Value& v : program.leaves->outputs()) types.push_back(v.type());
  ValueType cotangent = program.one->outputs()[0].type();
  cotangent.shape[program.axis] = program.rows;
  types.push_back(cotangent);
  std::vector<int> axes{-1};
  axes.insert(axes.end(), program.row_axes.begin(), program.row_axes.end());
  axes.push_back(program.axis);
  const auto flops_with = [&](bool pass) {
    const Function row = [&](std::span<const Value> v) {
      std::vector<Value> at_row(v.begin(), v.end());
      for (std::size_t i = 0; i < at_row.size(); ++i)
        if (axes[i] >= 0) at_row[i] = expand_dims(v[i], axes[i]);
      const Function of_x = [&](std::span<const Value> x) {
        std::vector<Value> all(at_row.begin(), at_row.end() - 1);
        all[0] = x[0];
        return inline_graph(*program.one, all);
      };
      const auto [values, pull_back] = vjp(of_x, {at_row.data(), 1});
      return pass ? std::vector{values[0], pull_back({&at_row.back(), 1})[0]} : values;
    };
    return flops_of(*trace(vmap(row, axes), types));
  };
  const double value = flops_with(false);
  return flops_of(*program.leaves) + value + static_cast<double>(num_passes) * std::max(flops_with(true) - value, 1.0);
}

std::vector<std::pair<int, int>> paired_axes(const Graph& graph, int input, const AxisFlow& flow) {
  std::vector<std::pair<int, int>> paired;
  const Shape &y = graph.outputs()[0].shape(), &x = graph.inputs()[at(input)].shape();
  for (int i = 0; i < static_cast<int>(flow.axes.size()); ++i) {
    const int axis = flow.axes[at(i)];
    const bool taken = std::ranges::any_of(paired, [&](const auto& p) { return p.first == axis; });
    if (axis >= 0 && !taken && y[axis] == x[i]) paired.emplace_back(axis, i);
  }
  std::ranges::sort(paired);
  return paired;
}

// Rows computed by reverse passes and the rest by forward ones, or columns the other way round.
struct Partition {
  double cost = 0;
  Colouring columns, rows;
  std::vector<bool> by_reverse;  // of each row: its elements come from reverse passes ...
  std::vector<bool> by_forward;  // ... unless their column's come from forward ones
  bool rows_first = true;
};

class Planner {
 public:
  Planner(const Graph& graph, int input, const JacobianOptions& options, bool symmetric, std::span<const Array> known)
      : graph_(graph), input_(input), options_(options), known_(known) {
    s_ = std::make_shared<JacobianStructure>();
    s_->input = graph.inputs()[at(input)].type();
    s_->output = graph.outputs()[0].type();
    s_->symmetric = symmetric;
    s_->max_bytes = options.max_bytes;
    plan_.structure = s_;
  }

  JacobianPlan run() {
    std::vector<AxisFlow> flows(graph_.inputs().size());
    flows[at(input_)] = flow_of_input(s_->input.shape.rank());
    const AxisFlow flow = flow_through(graph_, flows)[0];
    const bool empty = s_->input.shape.size() == 0 || s_->output.shape.size() == 0;
    if (!empty) s_->paired = paired_axes(graph_, input_, flow);
    s_->num_rows = s_->output.shape.size();
    s_->num_columns = s_->input.shape.size();
    for (const auto& [y, x] : s_->paired) {
      s_->num_rows /= s_->output.shape[y];
      s_->num_columns /= s_->input.shape[x];
    }
    if (empty || !flow.depends) {
      if (!empty) store_nothing();
      return plan_;
    }
    costs_ = estimate_costs(graph_, input_, !s_->symmetric && options_.mode != JacobianMode::Forward);
    const std::int64_t all_forward = s_->input.shape.size(), all_reverse = s_->output.shape.size();
    s_->dense_flops = std::min(costs_.of(all_forward, 0), costs_.of(0, all_reverse));
    find_sparsity();
    if (blocks_are_symmetric())
      choose_star();
    else
      choose();
    s_->flops = costs_.of(s_->forward_passes, s_->reverse_passes);
    if (!s_->symmetric && !s_->sparse && allows(JacobianMode::Mixed)) try_cut();
    if (!s_->symmetric) try_rows();
    return plan_;
  }

 private:
  void store_nothing() {
    s_->sparse = true;
    s_->row_start.assign(at(s_->num_rows) + 1, 0);
  }

  void find_sparsity() {
    if (s_->num_rows * s_->num_columns <= 1) return;
    if (!options_.sparsity) {
      s_->note = "zeros inside blocks were not looked for: sparsity is off";
      return;
    }
    FoundPattern found = find_pattern(graph_, input_, s_->paired, options_.max_detection_steps, known_);
    if (found.outcome == FoundPattern::Outcome::TooManySteps)
      s_->note = "zeros inside blocks were not looked for: that takes more than max_detection_steps";
    if (found.outcome != FoundPattern::Outcome::Sparse) return;
    pattern_ = std::move(found.pattern);
    if (blocks_are_symmetric()) pattern_ = pattern_->united(pattern_->transposed());
  }

  // Of a Hessian whose pairs are of one axis each. Where axes change places, block (i, j) is the transpose of block (j, i): nothing is told
  // of one from its own other half.
  bool blocks_are_symmetric() const {
    return s_->symmetric && std::ranges::all_of(s_->paired, [](const auto& p) { return p.first == p.second; });
  }
  // A Hessian's reverse passes are its forward ones.
  bool allows(JacobianMode mode) const {
    if (s_->symmetric) return mode == JacobianMode::Forward;
    return options_.mode == JacobianMode::Auto || options_.mode == mode;
  }
  static std::int64_t longest_row(const Pattern& p) {
    std::int64_t longest = 0;
    for (std::int64_t r = 0; r < p.num_rows; ++r) longest = std::max(longest, p.row_end(r) - p.row_begin(r));
    return longest;
  }
  // Colouring visits every pair of elements of a row: about this many steps.
  static double colouring_steps(const Pattern& p) {
    double pairs = 0;
    for (std::int64_t r = 0; r < p.num_rows; ++r) {
      const auto length = static_cast<double>(p.row_end(r) - p.row_begin(r));
      pairs += length * length;
    }
    return pairs;
  }
  static bool can_colour(const Pattern& p) {
    constexpr double most_steps = 1e8;
    return colouring_steps(p) < most_steps && p.nnz() < p.num_rows * p.num_columns;
  }
  // A row that is full needs a colour for each column.
  static bool is_worth_colouring(const Pattern& p) { return longest_row(p) < p.num_columns && can_colour(p); }

  void choose() {
    const std::int64_t n = s_->num_columns, m = s_->num_rows;
    const auto one_each = [](std::int64_t size) { return Colouring{iota_axes(static_cast<int>(size)), size}; };
    Colouring columns = one_each(n), rows = one_each(m);
    if (pattern_) {
      const Pattern transposed = pattern_->transposed();
      if (is_worth_colouring(*pattern_)) columns = colour_columns(*pattern_);
      if (is_worth_colouring(transposed)) rows = colour_columns(transposed);
    }
    const double forward = costs_.of(columns.num_colours, 0), reverse = costs_.of(0, rows.num_colours);
    Partition best;
    best.cost = std::min(allows(JacobianMode::Forward) ? forward : infinite,
                         allows(JacobianMode::Reverse) ? reverse : infinite);
    bool mixed = false;
    // A mix is tried for some twenty numbers of heavy rows and columns.
    if (pattern_ && allows(JacobianMode::Mixed) && is_sparse_enough() && colouring_steps(*pattern_) < 5e6 &&
        colouring_steps(pattern_->transposed()) < 5e6)
      for (const bool rows_first : {true, false})
        for (std::int64_t heavy = 1; heavy <= (rows_first ? m : n) / 2; heavy *= 2) {
          const Partition p = partition(rows_first, heavy);
          if (p.cost < best.cost * 0.999) {
            best = p;
            mixed = true;
          }
        }
    // Mode Mixed without a mix that pays allows neither: it takes forward passes if there are any.
    const bool use_reverse = allows(JacobianMode::Forward)   ? allows(JacobianMode::Reverse) && reverse < forward
                             : allows(JacobianMode::Reverse) ? true
                                                             : forward == infinite && reverse < infinite;
    if (mixed) {
      s_->mode = JacobianMode::Mixed;
    } else if (use_reverse) {
      s_->mode = JacobianMode::Reverse;
      best.rows = rows;
      best.columns = {};
    } else {
      s_->mode = JacobianMode::Forward;
      best.columns = columns;
      best.rows = {};
    }
    s_->forward_passes = best.columns.num_colours;
    s_->reverse_passes = best.rows.num_colours;
    plan_.column_colours = best.columns.colours;
    plan_.row_colours = best.rows.colours;
    const bool fewer = mixed || (use_reverse ? s_->reverse_passes < m : s_->forward_passes < n);
    if (!pattern_ || !(fewer || is_sparse_enough())) return;
    store_pattern([&](std::int64_t row, std::int64_t column) {
      const std::int64_t forward_place =
          row * s_->forward_passes + (best.columns.colours.empty() ? 0 : best.columns.colours[at(column)]);
      const std::int64_t reverse_place =
          m * s_->forward_passes + (best.rows.colours.empty() ? 0 : best.rows.colours[at(row)]) * n + column;
      if (!mixed) return use_reverse ? reverse_place : forward_place;
      const bool by_reverse = best.rows_first ? best.by_reverse[at(row)] : !best.by_forward[at(column)];
      return by_reverse ? reverse_place : forward_place;
    });
  }

  // Row by row of an axis of the output whose rows share the input, if that is cheaper. It gives whole rows: of a sparse Jacobian not
  // more than twice what is stored.
  void try_rows() {
    const std::int64_t all = s_->num_rows * s_->num_columns;
    if (s_->sparse && 2 * static_cast<std::int64_t>(s_->columns.size()) < all) return;
    for (int axis = 0; axis < s_->output.shape.rank(); ++axis) {
      const bool is_paired = std::ranges::any_of(s_->paired, [&](const auto& p) { return p.first == axis; });
      if (is_paired || s_->output.shape[axis] < 2) continue;
      std::optional<RowProgram> program = row_program(graph_, input_, axis);
      if (!program) continue;
      JacobianOptions plain;
      plain.sparsity = false;
      plain.mode = options_.mode;
      JacobianPlan plan = plan_jacobian(*program->one, 0, plain, false);
      const JacobianStructure& one = *plan.structure;
      // A forward pass of the whole is one of all rows already.
      if (one.sparse || one.paired != s_->paired || one.reverse_passes == 0) continue;
      const double flops = estimate_row_flops(*program, one.forward_passes + one.reverse_passes);
      // The outputs of a linear layer are such rows as well, and nothing is won there: unit cotangents pass it for free.
      if (flops > 0.75 * s_->flops) continue;
      s_->mode = one.mode;
      s_->forward_passes = one.forward_passes;
      s_->reverse_passes = one.reverse_passes;
      s_->flops = flops;
      s_->note = "rows along axis " + std::to_string(axis) + " share the input: these passes give all of them";
      plan_.column_colours.clear();
      plan_.row_colours.clear();
      plan_.cut = nullptr;
      plan_.rows = std::make_shared<RowJacobian>(RowJacobian{std::move(*program), std::move(plan)});
    }
    if (!plan_.rows || !s_->sparse) return;
    plan_.places.clear();
    store_pattern([&](std::int64_t row, std::int64_t column) { return row * s_->num_columns + column; });
  }

  // Through a narrow value in between, if that is cheaper.
  void try_cut() {
    const auto cut = find_cut(graph_, input_, *s_);
    if (!cut) return;
    JacobianOptions plain;
    plain.sparsity = false;
    cut->first = plan_jacobian(*cut->before, input_, plain, false);
    cut->second = plan_jacobian(*cut->after, static_cast<int>(graph_.inputs().size()), plain, false);
    const JacobianStructure &first = *cut->first.structure, &second = *cut->second.structure;
    const double product = 2.0 * static_cast<double>(s_->num_blocks()) * static_cast<double>(s_->num_rows) *
                           static_cast<double>(s_->num_columns) * static_cast<double>(first.num_rows);
    const double flops = first.flops + second.flops + product;
    if (flops > 0.9 * s_->flops) return;
    s_->mode = JacobianMode::Mixed;
    s_->forward_passes = first.forward_passes + second.forward_passes;
    s_->reverse_passes = first.reverse_passes + second.reverse_passes;
    s_->flops = flops;
    s_->note += (s_->note.empty() ? "" : "; ") + std::string("a product of two Jacobians, through ") +
                std::to_string(first.num_rows) + " values";
    plan_.column_colours.clear();
    plan_.row_colours.clear();
    plan_.cut = cut;
  }

  bool is_sparse_enough() const {
    return static_cast<double>(pattern_->nnz()) <=
           0.75 * static_cast<double>(s_->num_rows) * static_cast<double>(s_->num_columns);
  }

  // The `heavy` fullest rows by reverse passes and the others by forward ones, or the fullest columns by forward passes and the other
  // columns by reverse ones.
  Partition partition(bool rows_first, std::int64_t heavy) const {
    const Pattern lines = rows_first ? *pattern_ : pattern_->transposed();
    std::vector<std::int64_t> order = iota_axes(static_cast<int>(lines.num_rows));
    std::ranges::stable_sort(order, std::greater<>{},
                             [&](std::int64_t r) { return lines.row_end(r) - lines.row_begin(r); });
    std::vector<bool> is_heavy(at(lines.num_rows));
    for (std::int64_t k = 0; k < heavy; ++k) is_heavy[at(order[at(k)])] = true;
    // The heavy lines by themselves, those of one colour sharing no column.
    Pattern heavy_lines;
    heavy_lines.num_columns = lines.num_columns;
    for (std::int64_t r = 0; r < lines.num_rows; ++r) {
      std::vector<int> row;
      if (is_heavy[at(r)])
        for (std::int64_t k = lines.row_begin(r); k < lines.row_end(r); ++k)
          row.push_back(static_cast<int>(lines.columns[at(k)]));
      heavy_lines.add_row(row);
    }
    Colouring of_heavy = colour_columns(heavy_lines.transposed());
    // Colours of lines that take no part count for nothing.
    std::vector<std::int64_t> renamed(at(of_heavy.num_colours), -1);
    std::int64_t used = 0;
    for (std::int64_t r = 0; r < lines.num_rows; ++r) {
      std::int64_t& colour = of_heavy.colours[at(r)];
      if (!is_heavy[at(r)]) {
        colour = -1;
        continue;
      }
      if (renamed[at(colour)] < 0) renamed[at(colour)] = used++;
      colour = renamed[at(colour)];
    }
    of_heavy.num_colours = used;
    Colouring of_rest = colour_columns(lines, is_heavy);
    Partition p;
    p.rows_first = rows_first;
    p.columns = rows_first ? of_rest : of_heavy;
    p.rows = rows_first ? of_heavy : of_rest;
    (rows_first ? p.by_reverse : p.by_forward) = is_heavy;
    p.cost = costs_.of(p.columns.num_colours, p.rows.num_colours);
    return p;
  }

  void choose_star() {
    s_->mode = JacobianMode::Forward;
    const std::int64_t n = s_->num_columns;
    Colouring colouring{iota_axes(static_cast<int>(n)), n};
    const bool worth = pattern_ && can_colour(*pattern_);
    if (worth) colouring = colour_star(*pattern_);
    s_->forward_passes = colouring.num_colours;
    plan_.column_colours = colouring.colours;
    if (!pattern_ || !(colouring.num_colours < n || is_sparse_enough())) return;
    store_pattern([&](std::int64_t row, std::int64_t column) {
      const bool own_place = !worth || star_reads_column(*pattern_, colouring, row, column);
      return own_place ? row * colouring.num_colours + colouring.colours[at(column)]
                       : column * colouring.num_colours + colouring.colours[at(row)];
    });
  }

  template <class F> void store_pattern(F&& place) {
    s_->sparse = true;
    s_->row_start = pattern_->row_start;
    s_->columns = pattern_->columns;
    for (std::int64_t r = 0; r < pattern_->num_rows; ++r)
      for (std::int64_t k = pattern_->row_begin(r); k < pattern_->row_end(r); ++k)
        plan_.places.push_back(place(r, pattern_->columns[at(k)]));
  }

  const Graph& graph_;
  int input_;
  const JacobianOptions& options_;
  std::span<const Array> known_;  // numbers of the graph's inputs
  std::shared_ptr<JacobianStructure> s_;
  JacobianPlan plan_;
  Costs costs_{};
  std::optional<Pattern> pattern_;
};

}  // namespace

JacobianPlan plan_jacobian(const Graph& graph, int input, const JacobianOptions& options, bool symmetric,
                           std::span<const Array> known) {
  return Planner(graph, input, options, symmetric, known).run();
}

}  // namespace hotloop::ir
