#include <algorithm>
#include <cctype>
#include <cstdio>

#include "backends/render/renderer.h"
#include "hotloop/error.h"
#include "hotloop/export.h"
#include "hotloop/jit.h"
#include "runtime/lowering.h"

namespace hotloop {
namespace {

bool is_identifier(const std::string& name) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && letter(name[0]) && std::ranges::all_of(name, [&](char c) {
    return letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::string c_type(DType dtype) { return std::string(render::plain_c().memory_type(dtype)); }

// The elements as C literals that give the same bits.
std::string initializer(const Array& array) {
  std::string text = "{";
  char number[48];
  for (std::int64_t i = 0; i < array.size(); ++i) {
    if (i % 8 == 0) text += "\n    ";
    const double value = array.at(i);
    if (!is_float(array.dtype()))
      std::snprintf(number, sizeof number, "%.0f, ", value);
    else if (value != value)
      std::snprintf(number, sizeof number, "0.0%s/0.0%s, ", array.dtype() == DType::F32 ? "f" : "",
                    array.dtype() == DType::F32 ? "f" : "");
    else if (value - value != 0)
      std::snprintf(number, sizeof number, "%s1e999, ", value < 0 ? "-" : "");
    else
      std::snprintf(number, sizeof number, "%a%s, ", value, array.dtype() == DType::F32 ? "f" : "");
    text += number;
  }
  return text + "}";
}

struct Field {
  std::string name;
  ValueType type;
  const Array* value;
  std::string declaration() const {
    return c_type(type.dtype) + " " + name + "[" + std::to_string(std::max<std::int64_t>(type.shape.size(), 1)) +
           "];  // " + type.str();
  }
};

std::string struct_of(const std::string& name, const std::vector<Field>& fields) {
  std::string text = "typedef struct " + name + " {\n";
  for (const Field& f : fields) text += "  HOTLOOP_ALIGNED " + f.declaration() + "\n";
  if (fields.empty()) text += "  char none;\n";
  return text + "} " + name + ";\n";
}

std::string value_of(const std::vector<Field>& fields) {
  std::string text = "{\n";
  for (const Field& f : fields) text += "  ." + f.name + " = " + initializer(*f.value) + ",\n";
  return text + "};\n";
}

constexpr const char* header_text =
    R"(// $N: one step of a model over time. Made by hotloop; plain C11, no other file needed.
//
//   $N_voice voice;
//   $N_init(&voice, NULL);      // the weights it was exported with
//   $N_step(&voice, x, y);      // x: $x, y: $y, row by row
//
// A step allocates nothing, takes no lock and calls nothing but memcpy (and the C library's erf, sin,
// cos or pow, if the model has them). Compile with -O3 -ffp-contract=off -fno-math-errno. Voices are independent; one is used by one thread at a time. Memory
// for a voice is aligned to 64 bytes (a variable is; from the heap: aligned_alloc).
#ifndef HOTLOOP_$N_H
#define HOTLOOP_$N_H

#include <stdint.h>

#ifdef __cplusplus
#define HOTLOOP_ALIGNED alignas(64)
extern "C" {
#else
#define HOTLOOP_ALIGNED _Alignas(64)
#endif

enum { $N_INPUTS = $I, $N_OUTPUTS = $O };

// Weights as a step reads them: merged and transposed, in the order of hotloop's program.
$W
extern const $N_weights $N_exported_weights;

$S
typedef struct $N_voice {
  HOTLOOP_ALIGNED unsigned char scratch[$B];
  $N_state states[2];  // a step reads one and writes the other
  int current;
  const $N_weights* weights;
} $N_voice;

// Sets the initial state. `weights`: NULL for the exported ones; else they must outlive the voice.
void $N_init($N_voice* voice, const $N_weights* weights);
void $N_reset($N_voice* voice);
void $N_step($N_voice* voice, const $T* x, $T* y);

#ifdef __cplusplus
}
#endif
#undef HOTLOOP_ALIGNED
#endif
)";

constexpr const char* source_text = R"(
const $N_weights $N_exported_weights = $V
static const $N_state $N_initial_state = $Z
void $N_reset($N_voice* voice) { voice->states[voice->current] = $N_initial_state; }

void $N_init($N_voice* voice, const $N_weights* weights) {
  voice->current = 0;
  voice->weights = weights ? weights : &$N_exported_weights;
  $N_reset(voice);
}

void $N_step($N_voice* voice, const $T* x, $T* y) {
  const $N_state* before = &voice->states[voice->current];
  $N_state* after = &voice->states[1 - voice->current];
  void* const arguments[] = {$A};
  void* const results[] = {$R};
  const hl_context context = {arguments, results, voice->scratch, voice->scratch + $H, $M, 0, 1, 0, 0, 0, 0};
  (void)before;
  (void)after;
  $N_kernel(&context);
  voice->current = 1 - voice->current;
}
)";

std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [key, value] : values) text = replaced(std::move(text), key, value);
  return text;
}

// Plain C for one worker that nothing cancels.
render::Dialect single_threaded(const std::string& kernel_open) {
  render::Dialect dialect = render::plain_c();
  dialect.kernel_open = kernel_open;
  dialect.worker = "0";
  dialect.num_workers = "1";
  dialect.cancelled = "";
  dialect.barrier = "";
  return dialect;
}

}  // namespace

ExportedC export_c(const nn::Layer& model, const Tree<Array>& params, std::int64_t features,
                   const ExportOptions& options) {
  if (!is_identifier(options.name))
    throw UserError("export", "the name must be a C identifier", "'" + options.name + "'",
                    "letters, digits and underscores");
  const StreamStep step = stream_step(model, params, features, options.stream);
  CompileOptions compile_options;
  compile_options.target = options.target == "host" ? kernel::host_target().name : options.target;
  const runtime::BoundProgram bound = runtime::bind_program("export", *step.graph, step.bound, compile_options);
  const std::vector<Array>& prepared = bound.prepared;
  const kernel::Program program = runtime::lower(*bound.run, compile_options).program;

  // Arguments: the state's leaves, x, then what was prepared. Results: y, then the state's leaves.
  const std::vector<Array> initial = step.initial_state.flatten();
  std::vector<Field> state, weights;
  std::string arguments, results = "y";
  for (std::size_t i = 0; i < initial.size(); ++i) {
    state.push_back({"s" + std::to_string(i), initial[i].type(), &initial[i]});
    arguments += "(void*)before->" + state.back().name + ", ";
    results += ", after->" + state.back().name;
  }
  arguments += "(void*)x";
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    weights.push_back({"w" + std::to_string(i), prepared[i].type(), &prepared[i]});
    arguments += ", (void*)voice->weights->" + weights.back().name;
  }
  const ValueType& x = program.arguments[initial.size()];
  const ValueType& y = program.results[0];
  const std::int64_t shared = (program.shared_bytes + 63) / 64 * 64;
  const std::int64_t scratch = std::max<std::int64_t>(shared + program.worker_bytes, 64);
  const std::string& n = options.name;
  const std::string type = c_type(x.dtype);
  if (y.dtype != x.dtype) throw UserError("export", "x and y must have one dtype", x.str() + " and " + y.str());

  ExportedC files;
  files.scratch_bytes = scratch;
  for (const Field& f : state) files.state_bytes += static_cast<std::int64_t>(f.value->bytes());
  for (const Field& f : weights) files.weight_bytes += static_cast<std::int64_t>(f.value->bytes());
  files.header = filled(header_text, {{"$W", struct_of("$N_weights", weights)},
                                      {"$S", struct_of("$N_state", state)},
                                      {"$I", std::to_string(x.shape.size())},
                                      {"$O", std::to_string(y.shape.size())},
                                      {"$B", std::to_string(scratch)},
                                      {"$T", type},
                                      {"$x", x.str()},
                                      {"$y", y.str()},
                                      {"$N", n}});
  const std::string kernel_open = "static void " + n + "_kernel(const hl_context* ctx) {\n";
  // Generated code declares more than a model may use.
  files.source =
      "#pragma GCC diagnostic ignored \"-Wunused-function\"\n#pragma GCC diagnostic ignored \"-Wunused-variable\"\n"
      "#include \"" +
      n + ".h\"\n\n" + render::render(program, single_threaded(kernel_open)) +
      filled(source_text, {{"$V", value_of(weights)},
                           {"$Z", value_of(state)},
                           {"$A", arguments},
                           {"$R", results},
                           {"$H", std::to_string(shared)},
                           {"$M", std::to_string(program.max_rows)},
                           {"$T", type},
                           {"$N", n}});
  return files;
}

}  // namespace hotloop
