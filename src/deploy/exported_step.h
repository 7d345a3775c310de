// What the files of an export have in common: the step's and the preparation's programs for each target, and the layout of the
// structures that C sees.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hotloop/export.h"
#include "schedule/kernel_ir.h"

namespace hotloop::deploy {

// Bytes of the structures' fields, which all begin at multiples of 64.
constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A program with the memory that it works in.
struct Part {
  kernel::Program program;
  std::int64_t shared() const { return aligned(program.shared_bytes); }
  std::int64_t scratch() const { return aligned(shared() + program.worker_bytes); }
};

struct Variant {
  std::string level;  // x86-64-v2, x86-64-v3, x86-64-v4, aarch64
  Part step;          // (state..., inputs..., prepared...) -> (y, state...)
  Part prepare;       // (parameters..., buffers...) -> prepared
  std::vector<Array> prepared;
  std::vector<std::int64_t>
      offsets;  // of the prepared arrays in NAME_weights; prepare's scratch memory lies after them
  std::int64_t prepared_bytes = 0;
};

struct ExportedStep {
  std::string name;
  std::vector<Variant> variants;  // the highest level first
  std::vector<Array> initial;     // leaves of the state
  std::vector<std::int64_t> state_offsets;
  std::int64_t state_bytes = 0;
  struct Field {
    std::string name, leaf;  // in C, and in the tree
  };
  std::vector<Field> params;  // fields of NAME_params
  std::vector<ValueType> param_types;
  std::vector<ValueType> inputs;
  std::vector<Field> input_fields;  // of NAME_inputs; none: the step takes one array
  ValueType y;

  // Of all variants the greatest. A voice's scratch memory is that of the kernels, and behind it copies of the inputs for a caller who has y written over
  // them, which a kernel may do while it still reads them.
  std::int64_t kernel_bytes() const;
  std::vector<std::int64_t> copies() const;  // where they lie
  std::int64_t scratch_bytes() const;
  // As sizeof has NAME_voice and NAME_weights.
  std::int64_t voice_bytes() const;
  std::int64_t weights_bytes() const;
};

// Where the fields of NAME_voice lie.
struct VoiceLayout {
  std::int64_t states, weights, variant, current, bytes;
  explicit VoiceLayout(const ExportedStep& step)
      : states(step.scratch_bytes()),
        weights(states + 2 * step.state_bytes),
        variant(weights + 8),
        current(weights + 16),
        bytes(aligned(current + 4)) {}
};

// UserError for a name that is no C identifier, and for unknown targets.
void check_options(const ExportOptions& options);
ExportedStep exported_step(const StreamStep& step, const ExportOptions& options);

// The text with each key replaced by its value, in order.
std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& values);

// What the source for a level is to be compiled with, so that it gives the bits of the object and calls nothing.
std::string compile_flags(const std::string& level);

// The header, the source for the first target, and the object, in the order of hotloop/export.h.
std::string export_header(const ExportedStep& step);
// What NAME_init is called for who includes the header: code of another layout lacks it. By its own name it is there for who calls it without a header.
std::string tagged_init(const ExportedStep& step);
std::string export_source(const ExportedStep& step);
std::string export_object(const ExportedStep& step);

}  // namespace hotloop::deploy
