#include "schedule/schedule.h"

#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/fixed_rows.h"
#include "ir/op_def.h"
#include "schedule/axes.h"
#include "schedule/context.h"
#include "schedule/desugar.h"
#include "schedule/donate.h"
#include "schedule/levels.h"
#include "schedule/lower_math.h"
#include "schedule/memory_plan.h"
#include "schedule/overwrite.h"
#include "schedule/sections.h"
#include "schedule/stream_lanes.h"

namespace hotloop {
namespace {

int batch_class(const Graph& graph, const AxisAnalysis& axes, const ScheduleOptions& options) {
  int cls = -1;
  for (std::size_t i = 0; i < options.batch_axes.size(); ++i) {
    const int axis = options.batch_axes[i];
    if (axis < 0) continue;
    cls = axes.axis_class(graph.inputs()[i], axis);
    if (options.variable_rows && axis != 0)
      throw UserError("compile", "with a variable number of rows the batch must be the first axis",
                      "axis " + std::to_string(axis) + " of input " + std::to_string(i),
                      "transposing inside the function");
  }
  if (cls < 0 || !options.variable_rows) return cls;
  for (const auto& node : graph.nodes())
    if (axes.couples(*node, cls))
      throw NeedsFixedRows(
          "compile",
          "with a variable number of rows every operation must treat the rows of the batch alone or sum over them",
          "operation '" + node->op->name + "' of type " + node->types[0].str(), "compiling for a fixed batch");
  for (const Value& v : graph.outputs())
    if (axes.axis_in(v, cls) > 0)
      throw UserError("compile", "with a variable number of rows the batch must be the first axis of every output",
                      "axis " + std::to_string(axes.axis_in(v, cls)) + " of an output of type " + v.type().str(),
                      "transposing inside the function");
  return cls;
}

}  // namespace

kernel::Program schedule(const Graph& source, const ScheduleOptions& options) {
  const auto graph = desugar(source);
  const AxisAnalysis axes(*graph, options.batch_axes);
  LoweringContext context(axes, options);
  kernel::Program& program = context.program;
  program.name = source.name();
  program.target = options.target;
  program.arguments = graph->input_types();
  program.results = graph->output_types();

  context.tile_class = batch_class(*graph, axes, options);
  if (context.tile_class < 0) context.tile_class = axes.choose_tile_class(*graph);
  if (context.tile_class >= 0) program.max_rows = axes.extent(context.tile_class);

  for (std::size_t i = 0; i < graph->inputs().size(); ++i) {
    const Value v = graph->inputs()[i];
    const int buffer =
        context.new_buffer("in" + std::to_string(i), v.dtype(), v.shape().size(), kernel::Space::Argument);
    program.buffers.back().index = static_cast<int>(i);
    context.bind(v, row_major(buffer, v.shape()));
  }
  std::vector<LevelOutput> outputs;
  for (std::size_t i = 0; i < graph->outputs().size(); ++i) {
    const Value v = graph->outputs()[i];
    const int buffer =
        context.new_buffer("out" + std::to_string(i), v.dtype(), v.shape().size(), kernel::Space::Result);
    program.buffers.back().index = static_cast<int>(i);
    outputs.push_back({row_major(buffer, v.shape()), std::nullopt});
  }
  program.body = lower_levels(context, *graph, outputs);
  kernel::stream_lanes(program);
  kernel::lower_math(program);
  take_over_arguments(program, options.donated, [&](int input, int output) {
    if (!options.variable_rows) return true;
    const Value from = graph->inputs()[static_cast<std::size_t>(input)];
    const Value to = graph->outputs()[static_cast<std::size_t>(output)];
    return axes.axis_in(from, context.tile_class) == axes.axis_in(to, context.tile_class);
  });
  kernel::overwrite_last_reads(program);
  if (options.num_workers > 1)
    kernel::make_sections(program, options.num_workers, options.always_sections);
  else
    plan_memory(program);
  return std::move(program);
}

}  // namespace hotloop
