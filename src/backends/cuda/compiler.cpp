#include "backends/cuda/compiler.h"

#include <algorithm>

#include "backends/object_cache.h"
#include "hotloop/error.h"

namespace hotloop::cuda {
namespace {

constexpr std::size_t max_log_bytes = 2000;

std::vector<std::string> options_for(const std::string& architecture, bool flush_denormals) {
  std::vector<std::string> options = {"--gpu-architecture=" + architecture,
                                      "--fmad=false",
                                      "--std=c++17",
                                      "--device-int128",
                                      "-default-device",
                                      "--diag-suppress=177"};
  if (flush_denormals) options.emplace_back("--ftz=true");
  return options;
}

// Destroyed when it leaves its scope.
struct Program {
  explicit Program(const Nvrtc& functions) : nvrtc(functions) {}
  ~Program() {
    if (handle != nullptr) nvrtc.destroy_program(&handle);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const Nvrtc& nvrtc;
  NvrtcProgram handle = nullptr;
};

using GetSize = Result (*)(NvrtcProgram, std::size_t*);
using GetBytes = Result (*)(NvrtcProgram, char*);
// Empty where there is nothing.
std::string bytes_of(NvrtcProgram program, GetSize get_size, GetBytes get_bytes) {
  std::size_t size = 0;
  if (get_size(program, &size) != 0) return {};
  std::string bytes(size, '\0');
  if (size == 0 || get_bytes(program, bytes.data()) != 0) return {};
  return bytes;
}

}  // namespace

Compiler::Compiler(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {
  int minor = 0, count = 0;
  check(nvrtc_.version(&major_, &minor), "");
  version_ = "NVRTC " + std::to_string(major_) + "." + std::to_string(minor);
  check(nvrtc_.get_num_supported_archs(&count), "");
  HOTLOOP_CHECK(count > 0, version_ + " knows no architecture");
  capabilities_.resize(static_cast<std::size_t>(count));
  check(nvrtc_.get_supported_archs(capabilities_.data()), "");
  std::ranges::sort(capabilities_);
}

std::string Compiler::architecture(int capability) const {
  const auto after = std::ranges::upper_bound(capabilities_, capability);
  HOTLOOP_CHECK(after != capabilities_.begin(),
                version_ + " does not compile for capability " + std::to_string(capability));
  const int known = *(after - 1);
  return (known == capability ? "sm_" : "compute_") + std::to_string(known);
}

Image Compiler::compile(const std::string& source, int capability, const CodeOptions& options) const {
  const std::vector<std::string> arguments = options_for(architecture(capability), options.flush_denormals);
  if (options.cache_dir.empty()) return {run(source, arguments), false};
  std::string key = "cuda\n" + version_ + "\n";
  for (const std::string& argument : arguments) key += argument + "\n";
  key += source;
  const codegen::ObjectCache cache(options.cache_dir, options.cache_bytes);
  if (auto image = cache.find(key)) return {std::move(*image), true};
  Image image{run(source, arguments), false};
  cache.insert(key, image.bytes);  // an unwritable directory costs time, nothing else
  return image;
}

std::string Compiler::run(const std::string& source, const std::vector<std::string>& options) const {
  Program program(nvrtc_);
  check(nvrtc_.create_program(&program.handle, source.c_str(), "hotloop_kernel.cu", 0, nullptr, nullptr), "");
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const Result result = nvrtc_.compile_program(program.handle, static_cast<int>(arguments.size()), arguments.data());
  if (result != 0) {
    const std::string log = bytes_of(program.handle, nvrtc_.get_program_log_size, nvrtc_.get_program_log);
    check(result, log.substr(0, std::min(max_log_bytes, log.find('\0'))));
  }
  // There is no cubin of a virtual architecture.
  std::string image = bytes_of(program.handle, nvrtc_.get_cubin_size, nvrtc_.get_cubin);
  if (image.empty()) image = bytes_of(program.handle, nvrtc_.get_ptx_size, nvrtc_.get_ptx);
  HOTLOOP_CHECK(!image.empty(), version_ + " compiled a kernel to nothing");
  return image;
}

void Compiler::check(Result result, const std::string& log) const {
  if (result == 0) return;
  const std::string text = nvrtc_.get_error_string(result) + (log.empty() ? "" : ": " + log);
  if (result == nvrtc_out_of_memory)
    throw UserError("cuda", "the memory of the host must hold what " + version_ + " compiles", text,
                    "smaller programs");
  if (result == nvrtc_builtin_operation_failure)
    throw UserError("cuda", version_ + " must be installed whole, with libnvrtc-builtins beside libnvrtc", text,
                    "installing CUDA's NVRTC again");
  throw InternalError(__FILE__, __LINE__, version_ + " refuses a kernel: " + text);
}

}  // namespace hotloop::cuda
