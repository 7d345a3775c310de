#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "backends/cuda/device.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "cli/report.h"
#include "core/memory.h"
#include "runtime/cache_dir.h"
#include "runtime/thread_team.h"

namespace hotloop::cli {
namespace {

using nlohmann::ordered_json;

void line(const char* label, const std::string& text) { fmt::print("  {:<12}{}\n", label, text); }

std::string capability_of(const cuda::DeviceInfo& info) {
  return fmt::format("{}.{}", info.capability / 10, info.capability % 10);
}

ordered_json gpu_json() {
  std::string why;
  const cuda::Device* device = cuda::find_device(&why);
  if (device == nullptr) return {{"usable", false}, {"missing", why}};
  const cuda::DeviceInfo& info = device->info();
  return {{"usable", true},
          {"name", info.name},
          {"compute_capability", capability_of(info)},
          {"multiprocessors", info.multiprocessors},
          {"memory_bytes", info.memory_bytes},
          {"versions", info.versions}};
}

void show_gpu() {
  constexpr std::size_t indent = 14;
  std::string why;
  const cuda::Device* device = cuda::find_device(&why);
  fmt::print("gpu\n");
  if (device == nullptr) {
    line("CUDA", wrapped("not usable: " + why, indent));
    return;
  }
  const cuda::DeviceInfo& info = device->info();
  line("CUDA", wrapped(info.name + ", compute capability " + capability_of(info), indent));
  line("size", fmt::format("{} multiprocessors, {} of memory", info.multiprocessors,
                           bytes_text(static_cast<double>(info.memory_bytes))));
  line("versions", info.versions);
}

void show_devices(bool json) {
  const std::string compiler = compiler_on_path(), folder = runtime::disk_cache_dir();
  const long installed = ::sysconf(_SC_NPROCESSORS_CONF);
  if (json) {
    ordered_json backends = {"llvm", "interp"};
    if (!compiler.empty()) backends.push_back("c");
    const ordered_json out = {{"cpu",
                               {{"model", cpu_name()},
                                {"usable_cores", runtime::num_cores()},
                                {"installed_cores", installed},
                                {"target", target_name_of()},
                                {"target_of_bfloat16", target_name_of({.dot_precision = "bf16"})},
                                {"caches", cache_sizes()},
                                {"backends", backends},
                                {"compiler", compiler},
                                {"code_cache", folder}}},
                              {"gpu", gpu_json()}};
    print_json(out);
    return;
  }
  fmt::print("cpu\n");
  line("model", cpu_name());
  line("cores", fmt::format("{} usable of {} in the machine", runtime::num_cores(), installed));
  line("target", target_name_of());
  if (const std::string rounded = target_name_of({.dot_precision = "bf16"}); rounded != target_name_of())
    line("", "with bfloat16 " + rounded);
  line("caches", cache_sizes());
  line("backends", "llvm (default), interp (slow, the definition of all results)");
  line("", compiler.empty() ? "c: no C compiler on PATH, so not usable here" : "c, through " + compiler);
  line("code cache", folder.empty() ? "none (HOTLOOP_CACHE=0, or no folder that you alone can write)" : folder);
  show_gpu();
}

}  // namespace

void command_devices(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "Show what there is to run on");
  command->footer(
      "\nProcessor, vector target, caches, compilers and the GPU, as found here; of a GPU\nthat programs do not run "
      "on, what is missing.");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print it as JSON");
  command->callback([json] { show_devices(*json); });
}

}  // namespace hotloop::cli
