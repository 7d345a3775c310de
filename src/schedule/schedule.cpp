#include "schedule/schedule.h"

#include "ir/op_def.h"
#include "schedule/axes.h"
#include "schedule/bound_factors.h"
#include "schedule/change_places.h"
#include "schedule/context.h"
#include "schedule/desugar.h"
#include "schedule/donate.h"
#include "schedule/edges.h"
#include "schedule/levels.h"
#include "schedule/lower_math.h"
#include "schedule/memory_plan.h"
#include "schedule/overwrite.h"
#include "schedule/phases.h"
#include "schedule/row_sums.h"
#include "schedule/sections.h"
#include "schedule/stream_lanes.h"
#include "schedule/time_chunks.h"

namespace hotloop {

kernel::Program schedule(const Graph& source, const ScheduleOptions& options) {
  const auto graph = desugar(source);
  const AxisAnalysis axes(*graph, options.batch_axes);
  LoweringContext context(axes, options);
  kernel::Program& program = context.program;
  program.name = source.name();
  program.target = options.target;
  program.flushes_denormals = options.flush_denormals;
  program.arguments = graph->input_types();
  program.results = graph->output_types();

  context.tile_class = options.variable_rows ? variable_batch_class(*graph, axes, options.batch_axes)
                                             : batch_class(*graph, axes, options.batch_axes);
  if (context.tile_class < 0) context.tile_class = axes.choose_tile_class(*graph);
  if (context.tile_class >= 0) program.max_rows = axes.extent(context.tile_class);

  for (std::size_t i = 0; i < graph->inputs().size(); ++i) {
    const Value v = graph->inputs()[i];
    if (i < options.layouts.size() && options.layouts[i]) {
      bind_laid_out(context, v, static_cast<int>(i), options.layouts[i]);
      continue;
    }
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
  fill_plain_factors(context);
  kernel::stream_lanes(program);
  kernel::lower_math(program);
  take_over_arguments(program, options.donated, [&](int input, int output) {
    if (!options.variable_rows) return true;
    const Value from = graph->inputs()[static_cast<std::size_t>(input)];
    const Value to = graph->outputs()[static_cast<std::size_t>(output)];
    return axes.axis_in(from, context.tile_class) == axes.axis_in(to, context.tile_class);
  });
  kernel::overwrite_last_reads(program);
  if (options.target.has_blocks()) {
    kernel::join_phases(program);
    plan_memory(program);
    return std::move(program);
  }
  kernel::sum_rows_in_loops(program);
  kernel::sum_by_chunks(program);
  if (options.num_workers > 1) {
    kernel::make_sections(program, options.num_workers, options.always_sections);
  } else {
    kernel::change_places(program);
    plan_memory(program);
  }
  kernel::cut_at_edges(program);
  return std::move(program);
}

}  // namespace hotloop
