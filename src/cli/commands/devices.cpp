// What there is to run on, as found, not as hoped.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>
#include <fstream>
#include <map>
#include <thread>

#include "cli/command.h"
#include "runtime/cache_dir.h"
#include "runtime/thread_team.h"
#include "schedule/kernel_ir.h"

namespace hotloop::cli {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const std::size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

// "L1d 48K, L1i 32K, L2 1024K, L3 32768K", as the kernel tells of core 0.
std::string cache_sizes() {
  std::string out;
  for (int i = 0;; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    const std::string level = first_line(folder + "level"), size = first_line(folder + "size");
    if (level.empty()) break;
    const std::string type = first_line(folder + "type");
    out += (out.empty() ? "L" : ", L") + level + (type == "Data" ? "d" : type == "Instruction" ? "i" : "") + " " + size;
  }
  return out.empty() ? "not told by this system" : out;
}

std::string compiler_on_path() {
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "";
  for (const char* name : {"cc", "gcc", "clang"}) {
    for (std::size_t at = 0; at <= rest.size();) {
      const std::size_t end = std::min(rest.find(':', at), rest.size());
      const std::string candidate = rest.substr(at, end - at) + "/" + name;
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
      at = end + 1;
    }
  }
  return "";
}

bool library_loads(const char* name) {
  void* library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

void line(const char* label, const std::string& text) { fmt::print("  {:<12}{}\n", label, text); }

void show_devices() {
  static const std::map<std::string, std::string> vectors = {{"avx512", "avx512 (512-bit vectors)"},
                                                             {"avx2", "avx2 (256-bit vectors)"},
                                                             {"portable", "portable (128-bit vectors)"}};
  const std::string target = kernel::host_target().name;
  fmt::print("cpu\n");
  line("model", cpu_name());
  line("cores", fmt::format("{} usable of {} in the machine", runtime::num_cores(), ::sysconf(_SC_NPROCESSORS_CONF)));
  line("target", vectors.contains(target) ? vectors.at(target) : target);
  line("caches", cache_sizes());
  const std::string compiler = compiler_on_path();
  line("backends", "llvm (default), interp (slow, the definition of all results)");
  line("", compiler.empty() ? "c: no C compiler on PATH, so not usable here" : "c, through " + compiler);
  const std::string folder = runtime::disk_cache_dir();
  line("code cache", folder.empty() ? "none (HOTLOOP_CACHE=0, or no folder of one's own)" : folder);

  fmt::print("gpu\n");
  const bool cuda = library_loads("libcuda.so.1"), opencl = library_loads("libOpenCL.so.1");
  line("CUDA", cuda ? "driver found (libcuda.so.1)" : "no driver: libcuda.so.1 does not load");
  line("OpenCL", opencl ? "loader found (libOpenCL.so.1)" : "no loader: libOpenCL.so.1 does not load");
  line("", "This version runs on the CPU only; GPUs are not used.");
}

}  // namespace

void command_devices(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "Show what there is to run on");
  command->footer("\nProcessor, vector target, caches, compilers and GPU drivers, as found here.");
  command->callback(show_devices);
}

}  // namespace hotloop::cli
