#include "schedule/bound_factors.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/index.h"
#include "ir/op_def.h"
#include "schedule/accesses.h"
#include "schedule/column_walk.h"
#include "schedule/dot_factors.h"

namespace hotloop {

using ir::FactorLayout;
using kernel::Affine;

FactorLayout bound_layout(const kernel::Target& target, const ir::BoundFactor& factor, bool rounds) {
  if (!is_float(factor.dtype)) return {};
  // Panels of one width, and more than one of them.
  const auto panel_for = [&](std::int64_t step_bytes) {
    const std::int64_t panel = kernel::bound_panel_columns(target, factor.dtype, factor.rows, step_bytes);
    return panel > 0 && factor.n % panel == 0 && factor.n > panel ? panel : 0;
  };
  if (!rounds || factor.dtype != DType::F32) return {.panel = panel_for(factor.step_bytes)};
  const std::int64_t lanes = kernel::lanes_of(DType::U32);
  // A product of one has no pair. Columns that do not fill a vector may be a dot's rows, or read by inner products.
  if (factor.k < 2 || factor.n < lanes) return {};
  const std::int64_t half = half_of(factor.k, target.multiplies_blocks);
  if (target.multiplies_blocks) return {.panel = kernel::columns_of_blocks, .half = half, .lanes = lanes};
  const std::int64_t panel = panel_for(factor.step_bytes / 2);
  return {.panel = panel > 0 ? panel : factor.n, .half = half};
}

std::optional<PlacedFactor> bound_factor(LoweringContext& context, const Node& dot) {
  if (!dot.attrs.integers("rhs_batch").empty() || dot.attrs.integers("rhs_contract") != std::vector<std::int64_t>{0})
    return std::nullopt;
  const LoweringContext::LaidOut* input = context.laid_out(dot.operands[1]);
  if (input == nullptr || (input->layout.half > 0) != rounds_factors(dot)) return std::nullopt;
  for (int axis = 0; axis < 2; ++axis)
    if (context.is_row_axis(dot.operands[1], axis)) return std::nullopt;
  const FactorLayout& layout = input->layout;
  PlacedFactor placed{{input->buffer, 0, {layout.panel, 1}}, layout.panel, layout.half > 0};
  if (placed.in_pairs && context.options().target.multiplies_blocks)
    placed.storage.strides[1] = layout.half;
  else if (layout.panel == dot.operands[1].shape()[1])
    placed.panel = 0;  // rows lie one after the other, as they do without
  return placed;
}

void bind_laid_out(LoweringContext& context, Value input, int number, const FactorLayout& layout) {
  const ValueType type = layout.type(input.type());
  kernel::Program& program = context.program;
  program.arguments[static_cast<std::size_t>(number)] = type;
  LoweringContext::LaidOut laid_out{.matrix = input, .layout = layout};
  laid_out.buffer =
      context.new_buffer("in" + std::to_string(number), type.dtype, type.shape.size(), kernel::Space::Argument);
  program.buffers.back().index = number;
  laid_out.plain =
      context.new_buffer("plain" + std::to_string(number), input.dtype(), input.shape().size(), kernel::Space::Shared);
  context.bind(input, row_major(laid_out.plain, input.shape()));
  context.bind_laid_out(laid_out);
}

namespace {

// Copies `panels` panels of so many columns, the first of which is the matrix' column number `first_column`.
struct Panels {
  std::int64_t panels, columns, first_column;
};

kernel::Map plain_part(LoweringContext& context, const LoweringContext::LaidOut& input, const Panels& part,
                       bool upper) {
  const FactorLayout& layout = input.layout;
  const Value matrix = input.matrix;
  const std::int64_t rows = layout.rows(matrix.shape()), columns = matrix.shape()[1];
  const std::int64_t first_row = upper ? 0 : layout.half,
                     num_rows = upper ? std::min(rows, matrix.shape()[0]) : matrix.shape()[0] - layout.half;
  const kernel::Var row = context.new_var("k"), panel = context.new_var("panel"), column = context.new_var("i");
  // Of the last panel only what is not filled up.
  const std::int64_t wide = std::min(part.columns, columns - part.first_column);
  kernel::Map map;
  map.name = "plain";
  map.dims = {{row, {num_rows}}, {panel, {part.panels}}, {column, {wide}}};
  map.num_outer = 3;
  map.vector_dim = 2;
  map.split = true;
  const kernel::Access from{input.buffer,
                            Affine(part.first_column * rows) + Affine::of(panel, layout.panel * rows) +
                                Affine::of(row, part.columns) + Affine::of(column),
                            {}},
      to{input.plain,
         Affine(first_row * columns + part.first_column) + Affine::of(panel, layout.panel) + Affine::of(row, columns) +
             Affine::of(column),
         {}};
  std::vector<kernel::Instr>& instrs = map.instrs;
  const auto push = [&](kernel::Instr instr) {
    instrs.push_back(std::move(instr));
    return static_cast<int>(instrs.size()) - 1;
  };
  int value = push(kernel::load_instr(layout.type(matrix.type()).dtype, from));
  if (layout.half > 0) value = append_number_of_pair(instrs, value, upper);
  push(kernel::store_instr(matrix.dtype(), to, value));
  map.body_end = static_cast<int>(instrs.size());
  return map;
}

}  // namespace

void fill_plain_factors(LoweringContext& context) {
  std::set<int> read;
  kernel::for_each_statement(std::as_const(context.program.body), [&](const auto& statement) {
    kernel::for_each_access(statement, [&](const kernel::Use& use) { read.insert(use.access->buffer); });
  });
  kernel::Block filled;
  for (const LoweringContext::LaidOut& input : context.all_laid_out()) {
    if (!read.contains(input.plain)) continue;
    const Value matrix = input.matrix;
    const std::int64_t columns = input.layout.columns(matrix.shape()), panel = input.layout.panel;
    const std::int64_t panels = matrix.shape()[1] / panel, whole = panels * panel;
    std::vector<Panels> parts;
    if (panels > 0) parts.push_back({panels, panel, 0});
    if (whole < matrix.shape()[1]) parts.push_back({1, std::min(columns - whole, panel), whole});
    for (const Panels& part : parts)
      for (const bool upper : {true, false})
        if (upper || (input.layout.half > 0 && input.layout.half < matrix.shape()[0]))
          filled.push_back({plain_part(context, input, part, upper)});
  }
  if (filled.empty()) return;
  filled.push_back({kernel::Barrier{}});
  context.program.body.insert(context.program.body.begin(), std::make_move_iterator(filled.begin()),
                              std::make_move_iterator(filled.end()));
}

}  // namespace hotloop
