// Export: the streaming step of a model as plain C that needs nothing else - no library, no allocation, no lock.
//
//   ExportedC files = export_c(model, run.params, /*features=*/10, {.name = "demand"});
//   write files.header to demand.h and files.source to demand.c;  cc -O3 -ffp-contract=off -fno-math-errno -march=native -c demand.c
//
// In C, with NAME the given name:
//   NAME_voice voice;                       // one sequence: its state and scratch memory; any number of voices
//   NAME_init(&voice, NULL);                // the exported weights; or weights of the same type, which must outlive the voice
//   NAME_step(&voice, x, y);                // x[NAME_INPUTS] -> y[NAME_OUTPUTS]; real-time safe
//   NAME_reset(&voice);                     // back to the initial state
#pragma once

#include <cstdint>
#include <string>

#include "hotloop/nn.h"
#include "hotloop/stream.h"
#include "hotloop/tree.h"

namespace hotloop {

struct ExportOptions {
  std::string name = "model";   // prefix of every name in the files: a C identifier
  std::string target = "host";  // whose rounding and vector widths are used: host | avx512 | avx2 | portable (no fma)
  StreamOptions stream = {};    // `compile` is not used
};

struct ExportedC {
  std::string header, source;
  std::int64_t scratch_bytes = 0, state_bytes = 0, weight_bytes = 0;
};

// The step of Stream(model, params, features, options.stream) as C11. Compiled with -ffp-contract=off for the target's instructions
// it gives the same bits as the stream. UserError for a name that is no C identifier, and as Stream.
ExportedC export_c(const nn::Layer& model, const Tree<Array>& params, std::int64_t features,
                   const ExportOptions& options = {});

}  // namespace hotloop
