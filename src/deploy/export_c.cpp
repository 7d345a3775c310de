#include <algorithm>

#include "backends/backend.h"
#include "backends/render/renderer.h"
#include "core/hash.h"
#include "deploy/exported_step.h"
#include "hotloop/export.h"

namespace hotloop::deploy {
namespace {

std::string c_type(DType dtype) { return std::string(render::plain_c().memory_type(dtype)); }

std::string initializer(const Array& array) {
  std::string text = "{";
  for (std::int64_t i = 0; i < array.size(); ++i)
    text += (i % 8 == 0 ? "\n    " : " ") + render::static_literal(render::plain_c(), array, i) + ",";
  return text + "}";
}

std::string numbered(const char* letter, std::size_t i) { return letter + std::to_string(i); }

// A structure with one aligned array for each of `arrays`.
std::string struct_of(const std::string& name, const std::vector<Array>& arrays, const char* letter) {
  std::string text = "typedef struct " + name + " {\n";
  for (std::size_t i = 0; i < arrays.size(); ++i)
    text += "  HOTLOOP_ALIGNED " + c_type(arrays[i].dtype()) + " " + numbered(letter, i) + "[" +
            std::to_string(std::max<std::int64_t>(arrays[i].size(), 1)) + "];  // " + arrays[i].type().str() + "\n";
  if (arrays.empty()) text += "  HOTLOOP_ALIGNED char none[64];\n";
  return text + "} " + name + ";\n";
}

std::string value_of(const std::vector<Array>& arrays, const char* letter) {
  std::string text = "{\n";
  for (std::size_t i = 0; i < arrays.size(); ++i)
    text += "  ." + numbered(letter, i) + " = " + initializer(arrays[i]) + ",\n";
  if (arrays.empty()) text += "  {0},\n";
  return text + "};\n";
}

// A pointer, and beside it the leaf that it is of, where its name says it otherwise.
std::string field(const ExportedStep::Field& field, const ValueType& type) {
  std::string leaf = field.leaf == field.name || field.leaf.empty() ? "" : field.leaf + ", ";
  // The comment is one line, and nothing of it is filled in.
  std::ranges::replace_if(
      leaf, [](unsigned char c) { return c < ' ' || c == '$'; }, '?');
  return "  const " + c_type(type.dtype) + "* " + field.name + ";  // " + leaf + type.str() + "\n";
}

std::string params_struct(const ExportedStep& step) {
  std::string text = "typedef struct " + step.name + "_params {\n";
  for (std::size_t i = 0; i < step.params.size(); ++i) text += field(step.params[i], step.param_types[i]);
  if (step.params.empty()) text += "  char none;\n";
  return text + "} " + step.name + "_params;\n";
}

std::string inputs_struct(const ExportedStep& step) {
  if (step.input_fields.empty()) return "";
  std::string text = "\n// What a step reads, row by row.\ntypedef struct " + step.name + "_inputs {\n";
  for (std::size_t i = 0; i < step.inputs.size(); ++i) text += field(step.input_fields[i], step.inputs[i]);
  return text + "} " + step.name + "_inputs;\n";
}

// The type of what a step's x points to.
std::string type_of_x(const ExportedStep& step) {
  return step.input_fields.empty() ? c_type(step.inputs[0].dtype) : step.name + "_inputs";
}

std::string sizes(const ExportedStep& step) {
  const std::string outputs = "$N_OUTPUTS = " + std::to_string(step.y.shape.size());
  if (!step.input_fields.empty()) return outputs;
  return "$N_INPUTS = " + std::to_string(step.inputs[0].shape.size()) + ", " + outputs;
}

// A pointer x0, x1, ... to each input, or to a copy of it where y would be written while it is still read.
std::string read_inputs(const ExportedStep& step) {
  std::string text;
  const std::vector<std::int64_t> copies = step.copies();
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    // Read as numbers that y may be written over, which a compiler does not expect of another type's.
    const std::string_view shared = render::plain_c().shared_types[static_cast<std::size_t>(step.inputs[i].dtype)];
    const bool as_shared = step.inputs[i].dtype != step.y.dtype && !shared.empty();
    text += filled(R"(  const $X* $p = $f;
  if ((uintptr_t)$p < (uintptr_t)y + $d && (uintptr_t)y < (uintptr_t)$p + $c) {
    // y is written while it is still read.
    $X* copy = ($X*)(void*)(voice->scratch + $k);
    for (int64_t i = 0; i < $n; ++i) copy[i] = $r[i];
    $p = copy;
  }
)",
                   {{"$X", c_type(step.inputs[i].dtype)},
                    {"$r", as_shared ? "((const " + std::string(shared) + "*)$p)" : "$p"},
                    {"$p", numbered("x", i)},
                    {"$f", step.input_fields.empty() ? "x" : "x->" + step.input_fields[i].name},
                    {"$d", std::to_string(step.y.bytes())},
                    {"$c", std::to_string(step.inputs[i].bytes())},
                    {"$k", std::to_string(copies[i])},
                    {"$n", std::to_string(step.inputs[i].shape.size())}});
  }
  return text;
}

constexpr const char* header_text =
    R"(// $N: one step of a model over time. Made by hotloop; no other file needed.
//
//   $N_voice voice;
//   $N_init(&voice, NULL);      // the weights it was exported with
//   $N_step(&voice, $x
//
// Link with $N.o, or compile $N.c, by gcc or clang for a 64-bit processor, with
//   $F
// one of them, not both. A step allocates nothing, takes no lock and calls nothing but memcpy and memset; source with fused multiply-adds that
// is compiled without -march calls fmaf or fma, too, and is linked with -lm. Voices are independent; one is used by one thread at a time.
// Memory for voices and weights is aligned to 64 bytes (a variable is; from the heap: aligned_alloc).
#ifndef HOTLOOP_$N_H
#define HOTLOOP_$N_H

#include <stdint.h>

#ifdef __cplusplus
#define HOTLOOP_ALIGNED alignas(64)
extern "C" {
#elif __STDC_VERSION__ >= 201112L
#define HOTLOOP_ALIGNED _Alignas(64)
#else
#define HOTLOOP_ALIGNED __attribute__((aligned(64)))
#endif

enum { $E };

// The model's parameters, row by row.
$P$J
// Weights as a step reads them, which depends on the processor.
typedef struct $N_weights {
  HOTLOOP_ALIGNED unsigned char bytes[$G];
} $N_weights;

// Between two steps: what the model remembers.
$S
typedef struct $N_voice {
  HOTLOOP_ALIGNED unsigned char scratch[$B];
  $N_state states[2];  // a step reads one and writes the other
  const $N_weights* weights;
  const void* variant;
  int current;
} $N_voice;

// Other weights than the exported ones, from parameters that are not needed any longer afterwards. Not for the thread that makes steps.
// Returns 0, -1 on a processor that this was not exported for, or -2 for memory that is NULL or not aligned to 64 bytes.
int $N_prepare($N_weights* weights, const $N_params* params);
// Sets the initial state. `weights`: NULL for the exported ones; else they must outlive the voice. Returns as $N_prepare. This header and the
// code must be of one export: by this name a linker finds no other's.
#define $N_init $I
int $N_init($N_voice* voice, const $N_weights* weights);
// Other weights from the next step on; the state stays.
void $N_set_weights($N_voice* voice, const $N_weights* weights);
void $N_reset($N_voice* voice);
void $N_step($N_voice* voice, const $X* x, $Y* y);

#ifdef __cplusplus
}
#endif
#undef HOTLOOP_ALIGNED
#endif
)";

constexpr const char* source_text = R"(
static const $N_prepared $N_exported = $V
static const $N_state $N_initial_state = $Z
int $N_prepare($N_weights* weights, const $N_params* params) {
  if (!weights || (uintptr_t)weights % 64) return -2;
  $N_prepared* to = ($N_prepared*)(void*)weights->bytes;
  unsigned char* scratch = weights->bytes + $p;
  void* const arguments[] = {$Q};
  void* const results[] = {$U};
  const hl_context context = {arguments, results, scratch, scratch + $h, 1, 0, 1, 0, 0, 0, 0};
  (void)to;
  (void)params;
  $N_prepare_kernel(&context);
  return 0;
}

void $N_reset($N_voice* voice) { voice->states[voice->current] = $N_initial_state; }

void $N_set_weights($N_voice* voice, const $N_weights* weights) {
  voice->weights = weights ? weights : (const $N_weights*)(const void*)&$N_exported;
}

int $I($N_voice* voice, const $N_weights* weights) {
  if (!voice || ((uintptr_t)voice | (uintptr_t)weights) % 64) return -2;
  voice->current = 0;
  voice->variant = 0;
  $N_set_weights(voice, weights);
  $N_reset(voice);
  return 0;
}

#undef $N_init
int $N_init($N_voice* voice, const $N_weights* weights);
int $N_init($N_voice* voice, const $N_weights* weights) { return $I(voice, weights); }

void $N_step($N_voice* voice, const $X* x, $Y* y) {
  const $N_state* before = &voice->states[voice->current];
  $N_state* after = &voice->states[1 - voice->current];
  const $N_prepared* weights = (const $N_prepared*)(const void*)voice->weights;
$i  void* const arguments[] = {$A};
  void* const results[] = {$R};
  const hl_context context = {arguments, results, voice->scratch, voice->scratch + $H, $M, 0, 1, 0, 0, 0, voice->current};
  (void)before;
  (void)after;
  (void)weights;
  $N_kernel(&context);
  voice->current = 1 - voice->current;
}
)";

// Plain C for one worker that nothing cancels.
render::Dialect single_threaded(const std::string& function, const std::string& kernel_open, bool with_prelude) {
  render::Dialect dialect = render::plain_c();
  if (!with_prelude) dialect.prelude = "";
  dialect.kernel_open = kernel_open;
  dialect.kernel_name = function;
  dialect.worker = "0";
  dialect.num_workers = "1";
  dialect.cancelled = "";
  dialect.barrier = "";
  return dialect;
}

std::string rendered(const kernel::Program& program, const std::string& function, bool with_prelude) {
  const std::string kernel_open = "static void " + function + "(const hl_context* ctx) {\n";
  return render::render(program, single_threaded(function, kernel_open, with_prelude));
}

// "a, b, c", or a null pointer for none, which C arrays need.
std::string list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text.empty() ? "0" : text;
}

}  // namespace

std::string compile_flags(const std::string& level) {
  return "-O3 -ffp-contract=off -fno-math-errno" + (level == "aarch64" ? "" : " -march=" + level);
}

namespace {

std::string header_with(const ExportedStep& step, const std::string& init) {
  return filled(header_text,
                {{"$I", init},
                 {"$P", params_struct(step)},
                 {"$S", struct_of("$N_state", step.initial, "s")},
                 {"$G", std::to_string(step.weights_bytes())},
                 {"$J", inputs_struct(step)},
                 {"$E", sizes(step)},
                 {"$B", std::to_string(step.scratch_bytes())},
                 {"$X", type_of_x(step)},
                 {"$Y", c_type(step.y.dtype)},
                 {"$F", compile_flags(step.variants.front().level)},
                 {"$x", step.input_fields.empty()
                            ? "x, y);      // x: " + step.inputs[0].str() + ", y: " + step.y.str() + ", row by row"
                            : "&x, y);     // x: a $N_inputs, y: " + step.y.str() + ", row by row"},
                 {"$N", step.name}});
}

}  // namespace

std::string tagged_init(const ExportedStep& step) {
  return step.name + "_init_" + hash128(header_with(step, "")).substr(0, 16);
}

std::string export_header(const ExportedStep& step) { return header_with(step, tagged_init(step)); }

std::string export_source(const ExportedStep& step) {
  const Variant& v = step.variants.front();
  const std::string& n = step.name;
  std::vector<std::string> arguments, results = {"y"}, params, prepared;
  for (std::size_t i = 0; i < step.initial.size(); ++i) {
    arguments.push_back("(void*)before->" + numbered("s", i));
    results.push_back("after->" + numbered("s", i));
  }
  for (std::size_t i = 0; i < step.inputs.size(); ++i) arguments.push_back("(void*)" + numbered("x", i));
  for (std::size_t i = 0; i < v.prepared.size(); ++i) {
    arguments.push_back("(void*)weights->" + numbered("w", i));
    prepared.push_back("to->" + numbered("w", i));
  }
  for (const ExportedStep::Field& param : step.params) params.push_back("(void*)params->" + param.name);
  // Generated code declares more than a model may use, asks whether a number is itself, and has hints that not every compiler knows.
  std::string pragmas;
  for (const char* warning : {"unused-function", "unused-variable", "tautological-compare", "unknown-pragmas"})
    pragmas += "#pragma GCC diagnostic ignored \"-W" + std::string(warning) + "\"\n";
  return pragmas + "#include \"" + n + ".h\"\n\n" + rendered(v.step.program, n + "_kernel", true) +
         rendered(v.prepare.program, n + "_prepare_kernel", false) +
         "\n#if __STDC_VERSION__ >= 201112L\n#define HOTLOOP_ALIGNED _Alignas(64)\n#else\n#define HOTLOOP_ALIGNED "
         "__attribute__((aligned(64)))\n#endif\n" +
         struct_of(n + "_prepared", v.prepared, "w") +
         filled(source_text, {{"$I", tagged_init(step)},
                              {"$V", value_of(v.prepared, "w")},
                              {"$Z", value_of(step.initial, "s")},
                              {"$Q", list(params)},
                              {"$U", list(prepared)},
                              {"$A", list(arguments)},
                              {"$R", list(results)},
                              {"$p", std::to_string(v.prepared_bytes)},
                              {"$h", std::to_string(v.prepare.shared())},
                              {"$i", read_inputs(step)},
                              {"$H", std::to_string(v.step.shared())},
                              {"$M", std::to_string(v.step.program.max_rows)},
                              {"$X", type_of_x(step)},
                              {"$Y", c_type(step.y.dtype)},
                              {"$N", n}});
}

}  // namespace hotloop::deploy

namespace hotloop {

namespace {

ExportedC files_of(const deploy::ExportedStep& step) {
  ExportedC files;
  files.voice_bytes = step.voice_bytes();
  for (const Array& leaf : step.initial) files.state_bytes += static_cast<std::int64_t>(leaf.bytes());
  files.weight_bytes = step.weights_bytes();
  for (const deploy::Variant& variant : step.variants) files.targets.push_back(variant.level);
  files.header = deploy::export_header(step);
  files.source = deploy::export_source(step);
  if (can_compile_objects()) files.object = deploy::export_object(step);
  return files;
}

}  // namespace

ExportedC export_c(const nn::Layer& model, const Tree<Array>& params, std::int64_t features,
                   const ExportOptions& options) {
  deploy::check_options(options);
  return files_of(deploy::exported_step(stream_step(model, params, features, options.stream), options));
}

ExportedC export_c(const nn::Layer& model, const Tree<Array>& params, const Tree<ValueType>& inputs,
                   const ExportOptions& options) {
  deploy::check_options(options);
  return files_of(deploy::exported_step(stream_step(model, params, inputs, options.stream), options));
}

}  // namespace hotloop
