// compile_bound(): an executable whose bound inputs were worked into what it reads.
#include <algorithm>
#include <utility>

#include "hotloop/error.h"
#include "runtime/executable.h"
#include "runtime/lowering.h"

namespace hotloop {
namespace {

// What `like` runs on its first `num_inputs` inputs and `prepared`, which `prepare` made.
Executable with_prepared(const Executable::Impl& like, std::size_t num_inputs, const Executable& prepare,
                         std::vector<Array> prepared) {
  auto impl = std::make_shared<Executable::Impl>();
  impl->program = like.program;
  impl->graph_text = like.graph_text;
  impl->options = like.options;
  impl->inputs = like.inputs;
  impl->inputs.resize(num_inputs);
  impl->outputs = like.outputs;
  impl->max_rows = like.max_rows;
  impl->engine = like.engine;
  impl->device_choice = like.device_choice;
  impl->stages = like.stages;
  impl->bytes = like.bytes;
  impl->prepare = prepare;
  impl->bound = std::move(prepared);
  return Executable(std::move(impl));
}

}  // namespace

Executable compile_bound(std::shared_ptr<const Graph> graph, std::span<const Array> bound,
                         const CompileOptions& options) {
  if (graph == nullptr)
    throw UserError("compile_bound", "there must be a graph to compile", "a null pointer", "trace(function, types)");
  runtime::BoundProgram program =
      runtime::bind_program("compile_bound", *graph, bound, options, runtime::target_for(options));
  CompileOptions run_options = runtime::with_sums_kept(options);
  // What is bound is laid out for one device, before anybody knows what a call takes.
  if (run_options.device == "auto") run_options.device = "cpu";
  run_options.batch_axes.clear();
  for (std::size_t i = 0; i < bound.size() && !options.batch_axes.empty(); ++i)
    if (!bound[i].defined()) run_options.batch_axes.push_back(options.batch_axes[i]);
  run_options.donated.clear();
  for (std::size_t i = 0, open = 0; i < bound.size(); ++i) {
    if (bound[i].defined()) continue;
    if (std::ranges::find(options.donated, static_cast<int>(i)) != options.donated.end())
      run_options.donated.push_back(static_cast<int>(open));
    ++open;
  }
  if (!run_options.batch_axes.empty()) run_options.batch_axes.resize(program.run->inputs().size(), -1);

  const Executable run = runtime::compile_laid_out(program.run, run_options, program.layouts);
  const std::size_t num_open = run.input_types().size() - program.prepared.size();
  return with_prepared(run.impl(), num_open, program.prepare, std::move(program.prepared));
}

Executable rebind(const Executable& program, std::span<const Array> values) {
  const Executable::Impl& like = program.impl();
  if (!like.prepare) throw UserError("rebind", "the program must have bound inputs", "one without", "compile_bound");
  return with_prepared(like, like.inputs.size(), *like.prepare, (*like.prepare)(values));
}

}  // namespace hotloop
