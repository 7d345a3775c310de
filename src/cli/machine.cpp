#include "cli/machine.h"

#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <map>

#include "runtime/lowering.h"

namespace hotloop::cli {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string target_name_of(const CompileOptions& options) {
  static const std::map<std::string, std::string> vectors = {{"amx", "amx (512-bit vectors, blocks of bfloat16)"},
                                                             {"avx512", "avx512 (512-bit vectors)"},
                                                             {"avx2", "avx2 (256-bit vectors)"},
                                                             {"neon", "neon (128-bit vectors)"},
                                                             {"portable", "portable (128-bit vectors)"}};
  const std::string target = runtime::target_of(options);
  return vectors.contains(target) ? vectors.at(target) : target;
}

std::string cpu_name() {
  std::map<std::string, std::string> told;  // of the first processor
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();)
    if (const std::size_t colon = line.find(": "); colon != std::string::npos)
      told.emplace(line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1), line.substr(colon + 2));
  if (told.contains("model name")) return told["model name"];
  // Of ARM's, the kernel knows numbers, and perhaps the board.
  std::string board = first_line("/proc/device-tree/model");
  while (board.ends_with('\0')) board.pop_back();
  if (!board.empty()) return board;
  if (told.contains("CPU part")) return "implementer " + told["CPU implementer"] + ", part " + told["CPU part"];
  return "unknown";
}

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

}  // namespace hotloop::cli
