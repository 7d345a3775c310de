// Export: the streaming step of a model for C, as an object file and as plain C source - no library, no allocation, no lock.
//
//   ExportedC files = export_c(model, run.params, /*features=*/10, {.name = "demand", .target = "x86-64-v3,x86-64-v4"});
//   write files.header to demand.h, files.object to demand.o, files.source to demand.c
//   cc app.c demand.o      or      cc -O3 -ffp-contract=off -fno-math-errno -march=x86-64-v4 app.c demand.c
//
// In C, with NAME the given name:
//   NAME_voice voice;                       // one sequence: its state and scratch memory; any number of voices
//   NAME_init(&voice, NULL);                // with the exported weights; or with others, which must outlive the voice
//   NAME_step(&voice, x, y);                // x[NAME_INPUTS] -> y[NAME_OUTPUTS]; real-time safe. Of several inputs, x is the address of a
//                                           // NAME_inputs, which has a pointer to each, by its name
//   NAME_reset(&voice);                     // back to the initial state
//   NAME_prepare(&weights, &params);        // other weights, from parameters in the model's shapes; not for the real-time thread
//   NAME_set_weights(&voice, &weights);     // from the next step on
// init and prepare return 0, -1 on a processor without a variant, -2 for memory that is NULL or not aligned to 64 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hotloop/nn.h"
#include "hotloop/stream.h"
#include "hotloop/tree.h"

namespace hotloop {

struct ExportOptions {
  std::string name = "model";  // prefix of every name in the files: a C identifier
  // Whose instructions and rounding: host (the level of this machine), x86-64-v2 (no fused multiply-add), x86-64-v3, x86-64-v4, or several
  // of these levels with commas between, of which the object takes the highest that its processor runs; or aarch64, alone. avx512, avx2,
  // portable and neon, as in CompileOptions, mean v4, v3, v2 and aarch64.
  std::string target = "host";
  StreamOptions stream = {};  // `compile` is not used
};

struct ExportedC {
  std::string header;
  std::string source;  // C11, for the highest of the targets
  std::string object;  // ELF for Linux on x86-64 or AArch64, position-independent; empty from a build without LLVM
  std::vector<std::string> targets;  // the highest first
  // sizeof(NAME_voice), sizeof(NAME_weights) with the room that NAME_prepare works in, and the state's leaves.
  std::int64_t voice_bytes = 0, weight_bytes = 0, state_bytes = 0;
};

// The step of Stream(model, params, features, options.stream). The object, and the C source compiled with -ffp-contract=off for a target's
// instructions, give the bits of a stream compiled for that target (CompileOptions::target). UserError for a name that is no C
// identifier, for targets that are unknown or do not go together, and as Stream.
ExportedC export_c(const nn::Layer& model, const Tree<Array>& params, std::int64_t features,
                   const ExportOptions& options = {});
// Of Stream(model, params, inputs, options.stream): a NAME_inputs unless the tree is one leaf.
ExportedC export_c(const nn::Layer& model, const Tree<Array>& params, const Tree<ValueType>& inputs,
                   const ExportOptions& options = {});

}  // namespace hotloop
