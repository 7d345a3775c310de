#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/machine.h"
#include "runtime/cache_dir.h"
#include "runtime/thread_team.h"

namespace hotloop::cli {
namespace {

void line(const char* label, const std::string& text) { fmt::print("  {:<12}{}\n", label, text); }

void show_devices(bool json) {
  const std::string compiler = compiler_on_path(), folder = runtime::disk_cache_dir();
  const bool cuda = library_loads("libcuda.so.1"), opencl = library_loads("libOpenCL.so.1");
  const long installed = ::sysconf(_SC_NPROCESSORS_CONF);
  if (json) {
    nlohmann::ordered_json backends = {"llvm", "interp"};
    if (!compiler.empty()) backends.push_back("c");
    const nlohmann::ordered_json out = {{"cpu",
                                         {{"model", cpu_name()},
                                          {"usable_cores", runtime::num_cores()},
                                          {"installed_cores", installed},
                                          {"target", host_target_name()},
                                          {"caches", cache_sizes()},
                                          {"backends", backends},
                                          {"compiler", compiler},
                                          {"code_cache", folder}}},
                                        {"gpu", {{"cuda_driver", cuda}, {"opencl_loader", opencl}, {"used", false}}}};
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("cpu\n");
  line("model", cpu_name());
  line("cores", fmt::format("{} usable of {} in the machine", runtime::num_cores(), installed));
  line("target", host_target_name());
  line("caches", cache_sizes());
  line("backends", "llvm (default), interp (slow, the definition of all results)");
  line("", compiler.empty() ? "c: no C compiler on PATH, so not usable here" : "c, through " + compiler);
  line("code cache", folder.empty() ? "none (HOTLOOP_CACHE=0, or no folder that you alone can write)" : folder);

  fmt::print("gpu\n");
  line("CUDA", cuda ? "driver found (libcuda.so.1)" : "no driver: libcuda.so.1 does not load");
  line("OpenCL", opencl ? "loader found (libOpenCL.so.1)" : "no loader: libOpenCL.so.1 does not load");
  line("", "This version runs on the CPU only; GPUs are not used.");
}

}  // namespace

void command_devices(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "Show what there is to run on");
  command->footer("\nProcessor, vector target, caches, compilers and GPU drivers, as found here.");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print it as JSON");
  command->callback([json] { show_devices(*json); });
}

}  // namespace hotloop::cli
