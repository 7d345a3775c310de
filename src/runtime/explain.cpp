// Executable::explain(): what was made of the program, in 80 columns.
#include <algorithm>
#include <string>

#include "runtime/executable.h"
#include "runtime/text_lines.h"
#include "schedule/host.h"

namespace hotloop {

using runtime::append_line;
using runtime::fixed;
using runtime::scaled;

namespace {

std::string count(std::int64_t n, const char* noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

}  // namespace

std::string Executable::explain() const {
  const Impl& self = *impl_;
  const KernelRecord kernel = self.engine->describe(self.max_rows);
  std::string out;
  append_line(out, "program",
              self.program.name + ": " + count(static_cast<std::int64_t>(self.inputs.size()), "input") + ", " +
                  count(static_cast<std::int64_t>(self.outputs.size()), "output") + ", " +
                  count(static_cast<std::int64_t>(self.program.num_nodes), "node"));
  append_line(
      out, "backend",
      (self.options.backend == "cuda"
           ? "cuda"
           : self.options.backend + ", " + self.options.target + ", " + count(self.options.threads, "thread")) +
          (self.max_rows > 1 && !self.options.batch_axes.empty() ? ", up to " + std::to_string(self.max_rows) + " rows"
                                                                 : ""));
  const std::string device = self.engine->device();
  if (!device.empty()) append_line(out, "device", device);
  if (!self.device_choice.empty()) append_line(out, device.empty() ? "device" : "", self.device_choice);
  if (self.options.dot_precision == "bf16") {
    const bool is_llvm = self.options.backend == "llvm", in_blocks = is_llvm && self.options.target == "amx",
               in_pairs = is_llvm && self.options.target == "avx512" && kernel::host_multiplies_pairs();
    append_line(out, "dots",
                std::string("factors of f32 in bfloat16, added in f32; ") +
                    (in_blocks  ? "in blocks of 16 rows, 32 products and 16 columns an instruction (AMX)"
                     : in_pairs ? "two products an instruction (AVX512-BF16)"
                                : "no gain here: one product after the other"));
  }
  if (self.options.flush_denormals.value_or(false))
    append_line(out, "denormals",
                self.options.device == "cuda" ? "count as 0 in arithmetic of f32" : "count as 0 in arithmetic");
  for (const std::string& line : self.program.pass_lines)
    append_line(out, &line == &self.program.pass_lines.front() ? "passes" : "", line);
  if (const std::string structure = self.engine->structure(); !structure.empty()) {
    append_line(out, "kernels", structure);
  } else if (self.options.backend != "interp") {
    append_line(out, "kernel",
                "1 kernel: " + count(kernel.num_grids, "grid") + ", " + count(kernel.num_loops, "loop") + ", " +
                    count(kernel.num_dots, "dot") + ", " + count(kernel.num_maps, "map") +
                    (kernel.num_sections > 0 ? ", " + count(kernel.num_sections, "section") : ""));
    if (const std::int64_t slots = self.engine->slots(); slots > 0)
      append_line(out, "", "rows stream through " + std::to_string(slots) + " slots, as each has its iterations");
    append_line(out, "memory",
                "arena " + scaled(static_cast<double>(kernel.shared_bytes), "B", 1024) + " shared, " +
                    scaled(static_cast<double>(kernel.scratch_bytes), "B", 1024) + " a worker");
  }
  if (!self.options.donated.empty()) {
    std::string text;
    int num_kept = 0;
    for (const int input : self.options.donated) {
      const auto output = std::ranges::find(self.program.in_place, input);
      if (output == self.program.in_place.end())
        ++num_kept;
      else
        text += (text.empty() ? "" : ", ") + std::string("output ") +
                std::to_string(output - self.program.in_place.begin()) + " in place of input " + std::to_string(input);
    }
    if (num_kept > 0)
      text += (text.empty() ? "" : "; ") + count(num_kept, "input") +
              " read after every output of that type is begun, or without one: free after the call";
    append_line(out, "donated", text);
  }
  if (const std::string workers = self.engine->workers(); !workers.empty()) append_line(out, "threads", workers);
  append_line(out, "work",
              (self.program.arithmetic.is_bound ? "at most " : "") + scaled(self.program.arithmetic.flops, "flop") +
                  " (a dot's multiply-add is two, an element of any other operation one) and " +
                  scaled(self.bytes, "B") + " of inputs and outputs a call");
  std::string stages;
  double total_ms = 0;
  for (const runtime::StageTime& s : self.stages) {
    stages += (stages.empty() ? "" : ", ") + s.name + " " + fixed(s.time_ms, "ms");
    total_ms += s.time_ms;
  }
  append_line(out, "compiled", "in " + fixed(total_ms, "ms") + ": " + stages);
  const auto calls = self.num_calls.load(std::memory_order_relaxed);
  const auto timed = self.num_timed.load(std::memory_order_relaxed);
  if (timed > 0) {
    const double mean_us =
        static_cast<double>(self.total_ns.load(std::memory_order_relaxed)) * 1e-3 / static_cast<double>(timed);
    std::string text = count(calls, "call") + ", mean " + fixed(mean_us, "us");
    if (const auto best_ns = self.best_ns.load(std::memory_order_relaxed); best_ns > 0) {
      text += ", best " + fixed(static_cast<double>(best_ns) * 1e-3, "us");
      // Of a loop that may have ended early nobody knows how much was done.
      if (!self.program.arithmetic.is_bound)
        text +=
            ", " + scaled(self.program.arithmetic.flops / (static_cast<double>(best_ns) * 1e-9), "flop/s") + " at best";
    }
    append_line(out, "measured", text);
  } else {
    append_line(out, "measured", "not run yet");
  }
  return out;
}

}  // namespace hotloop
