#include "backends/cuda/libraries.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace hotloop::cuda {
namespace {

namespace fs = std::filesystem;

// The symbols of a library; the first that is missing is remembered.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}
  template <class F> void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  template <class F> void find_if_there(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library_, name));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string loader_error() {
  const char* text = dlerror();
  return text == nullptr ? "the loader gives no reason" : text;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> nvrtc_paths() {
  const std::string chosen = environment("HOTLOOP_NVRTC"), home = environment("CUDA_HOME");
  std::error_code ignored;
  if (!chosen.empty() && !fs::is_directory(chosen, ignored)) return {chosen};
  std::vector<fs::path> folders;
  if (!chosen.empty()) {
    const fs::path folder = chosen;
    folders.push_back(folder);
    for (const fs::path& packages : {folder, folder / ".."}) {
      folders.push_back(packages / "nvidia" / "cu13" / "lib");
      folders.push_back(packages / "nvidia" / "cuda_nvrtc" / "lib");
    }
  }
  folders.emplace_back();  // as the loader finds it
  if (!home.empty()) folders.push_back(fs::path(home) / "lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  std::vector<std::string> paths;
  for (const fs::path& folder : folders) {
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
      const std::string path = (folder / name).string();
      if ((folder.empty() || fs::exists(path, ignored)) && std::ranges::find(paths, path) == paths.end())
        paths.push_back(path);
    }
  }
  return paths;
}

std::string find_functions(void* library, Nvrtc& nvrtc) {
  Symbols symbols(library);
  symbols.find(nvrtc.get_error_string, "nvrtcGetErrorString");
  symbols.find(nvrtc.version, "nvrtcVersion");
  symbols.find(nvrtc.get_num_supported_archs, "nvrtcGetNumSupportedArchs");
  symbols.find(nvrtc.get_supported_archs, "nvrtcGetSupportedArchs");
  symbols.find(nvrtc.create_program, "nvrtcCreateProgram");
  symbols.find(nvrtc.destroy_program, "nvrtcDestroyProgram");
  symbols.find(nvrtc.compile_program, "nvrtcCompileProgram");
  symbols.find(nvrtc.get_ptx_size, "nvrtcGetPTXSize");
  symbols.find(nvrtc.get_ptx, "nvrtcGetPTX");
  symbols.find(nvrtc.get_cubin_size, "nvrtcGetCUBINSize");
  symbols.find(nvrtc.get_cubin, "nvrtcGetCUBIN");
  symbols.find(nvrtc.get_program_log_size, "nvrtcGetProgramLogSize");
  symbols.find(nvrtc.get_program_log, "nvrtcGetProgramLog");
  return symbols.missing();
}

// Why it is of no use; empty if it is.
std::string open_nvrtc_at(const std::string& path, int newest_major, Nvrtc& nvrtc) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return loader_error();
  const std::string missing = find_functions(library, nvrtc);
  int major = 0, minor = 0;
  std::string why;
  if (!missing.empty()) {
    why = path + ": lacks " + missing;
  } else if (nvrtc.version(&major, &minor) != 0) {
    why = path + ": does not tell its version";
  } else if (major > newest_major) {
    why = path + ": is of CUDA " + std::to_string(major) + ", the driver of CUDA " + std::to_string(newest_major);
  }
  if (!why.empty()) dlclose(library);
  return why;
}

}  // namespace

std::string Driver::error_text(Result error) const {
  const char *name = nullptr, *text = nullptr;
  if (get_error_name(error, &name) != 0 || name == nullptr) return "CUDA error " + std::to_string(error);
  if (get_error_string(error, &text) != 0 || text == nullptr) return name;
  return std::string(name) + ": " + text;
}

std::optional<Driver> open_driver(std::string& why) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why = "no driver of a CUDA device can be opened (" + loader_error() + ")";
    return std::nullopt;
  }
  Driver driver{};
  Symbols symbols(library);
  symbols.find(driver.init, "cuInit");
  symbols.find(driver.driver_get_version, "cuDriverGetVersion");
  symbols.find(driver.device_get_count, "cuDeviceGetCount");
  symbols.find(driver.device_get, "cuDeviceGet");
  symbols.find(driver.device_get_name, "cuDeviceGetName");
  symbols.find(driver.device_get_attribute, "cuDeviceGetAttribute");
  symbols.find(driver.device_total_mem, "cuDeviceTotalMem_v2");
  symbols.find(driver.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  symbols.find(driver.ctx_get_current, "cuCtxGetCurrent");
  symbols.find(driver.ctx_set_current, "cuCtxSetCurrent");
  symbols.find(driver.mem_alloc, "cuMemAlloc_v2");
  symbols.find(driver.mem_free, "cuMemFree_v2");
  symbols.find(driver.mem_host_alloc, "cuMemHostAlloc");
  symbols.find(driver.mem_free_host, "cuMemFreeHost");
  symbols.find(driver.memcpy_h_to_d_async, "cuMemcpyHtoDAsync_v2");
  symbols.find(driver.memcpy_d_to_h_async, "cuMemcpyDtoHAsync_v2");
  symbols.find(driver.memset_d8_async, "cuMemsetD8Async");
  symbols.find(driver.stream_create, "cuStreamCreate");
  symbols.find(driver.stream_destroy, "cuStreamDestroy_v2");
  symbols.find(driver.stream_query, "cuStreamQuery");
  symbols.find(driver.stream_synchronize, "cuStreamSynchronize");
  symbols.find(driver.module_load_data, "cuModuleLoadData");
  symbols.find(driver.module_unload, "cuModuleUnload");
  symbols.find(driver.module_get_function, "cuModuleGetFunction");
  symbols.find(driver.func_set_attribute, "cuFuncSetAttribute");
  symbols.find(driver.occupancy_max_active_blocks_per_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  symbols.find(driver.launch_cooperative_kernel, "cuLaunchCooperativeKernel");
  symbols.find_if_there(driver.launch_kernel_ex, "cuLaunchKernelEx");
  symbols.find_if_there(driver.occupancy_max_active_clusters, "cuOccupancyMaxActiveClusters");
  symbols.find(driver.get_error_string, "cuGetErrorString");
  symbols.find(driver.get_error_name, "cuGetErrorName");
  if (symbols.missing().empty()) return driver;
  why = "libcuda.so.1, the driver, is too old: it lacks " + symbols.missing();
  return std::nullopt;
}

std::optional<Nvrtc> open_nvrtc(int newest_major, std::string& why) {
  std::string reasons;
  for (const std::string& path : nvrtc_paths()) {
    Nvrtc nvrtc{};
    const std::string reason = open_nvrtc_at(path, newest_major, nvrtc);
    if (reason.empty()) return nvrtc;
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  const bool is_old = newest_major < 13;
  why = "NVRTC, the run-time compiler of CUDA, cannot be opened (" + reasons + "): Python's package nvidia-cuda-nvrtc" +
        (is_old ? "-cu12" : "") + " has it, and HOTLOOP_NVRTC=<the path of libnvrtc.so." + (is_old ? "12" : "13") +
        "> says where";
  return std::nullopt;
}

}  // namespace hotloop::cuda
