// What a machine with a CUDA device has: the driver's library and the one of the run-time compiler, NVRTC, opened at
// run time. Declared here is what is used of them, as cuda.h and nvrtc.h of CUDA 12 and 13 do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace hotloop::cuda {

using Result = int;  // 0: success
inline constexpr Result invalid_value = 1, out_of_memory = 2, device_unavailable = 46, ecc_uncorrectable = 214,
                        nvlink_uncorrectable = 220, not_ready = 600, launch_timeout = 702, invalid_cluster_size = 912;
inline constexpr Result nvrtc_out_of_memory = 1, nvrtc_builtin_operation_failure = 7;

enum class DeviceAttribute : int {
  MultiprocessorCount = 16,
  ComputeCapabilityMajor = 75,
  ComputeCapabilityMinor = 76,
  CooperativeLaunch = 95,
  MaxSharedMemoryPerBlockOptin = 97,
  ClusterLaunch = 120,
};
enum class FunctionAttribute : int { MaxDynamicSharedSizeBytes = 8, NonPortableClusterSizeAllowed = 14 };

using DriverDevice = int;
using DriverContext = struct DriverContextRecord*;
using DriverStream = struct DriverStreamRecord*;
using DriverModule = struct DriverModuleRecord*;
using DriverFunction = struct DriverFunctionRecord*;
using NvrtcProgram = struct NvrtcProgramRecord*;

// Of a launch, CUlaunchAttribute.
enum class LaunchAttributeId : int { Cooperative = 2, ClusterDimension = 4 };
struct LaunchAttribute {
  LaunchAttributeId id;
  int padding = 0;
  union {
    unsigned char bytes[64] = {};
    int cooperative;
    unsigned cluster[3];
  };
};
// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  DriverStream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned num_attributes = 0;
};

// Functions by their names without the prefix and without the version of their interface.
struct Driver {
  Result (*init)(unsigned flags);
  Result (*driver_get_version)(int* version);  // 1000 * major + 10 * minor of the newest CUDA that it runs
  Result (*device_get_count)(int* count);
  Result (*device_get)(DriverDevice* device, int ordinal);
  Result (*device_get_name)(char* name, int bytes, DriverDevice device);
  Result (*device_get_attribute)(int* value, DeviceAttribute attribute, DriverDevice device);
  Result (*device_total_mem)(std::size_t* bytes, DriverDevice device);
  Result (*device_primary_ctx_retain)(DriverContext* context, DriverDevice device);
  Result (*ctx_get_current)(DriverContext* context);
  Result (*ctx_set_current)(DriverContext context);
  Result (*mem_alloc)(std::uint64_t* address, std::size_t bytes);
  Result (*mem_free)(std::uint64_t address);
  Result (*mem_host_alloc)(void** address, std::size_t bytes, unsigned flags);
  Result (*mem_free_host)(void* address);
  Result (*memcpy_h_to_d_async)(std::uint64_t to, const void* from, std::size_t bytes, DriverStream stream);
  Result (*memcpy_d_to_h_async)(void* to, std::uint64_t from, std::size_t bytes, DriverStream stream);
  Result (*memset_d8_async)(std::uint64_t at, unsigned char byte, std::size_t bytes, DriverStream stream);
  Result (*stream_create)(DriverStream* stream, unsigned flags);
  Result (*stream_destroy)(DriverStream stream);
  Result (*stream_query)(DriverStream stream);
  Result (*stream_synchronize)(DriverStream stream);
  Result (*module_load_data)(DriverModule* module, const void* image);
  Result (*module_unload)(DriverModule module);
  Result (*module_get_function)(DriverFunction* function, DriverModule module, const char* name);
  Result (*func_set_attribute)(DriverFunction function, FunctionAttribute attribute, int value);
  Result (*occupancy_max_active_blocks_per_multiprocessor)(int* blocks, DriverFunction function, int threads,
                                                           std::size_t dynamic_shared_bytes);
  Result (*launch_cooperative_kernel)(DriverFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                      DriverStream stream, void** arguments);
  // Null in drivers before CUDA 11.8, under which no blocks run side by side.
  Result (*launch_kernel_ex)(const LaunchConfig* config, DriverFunction function, void** arguments, void** extra);
  Result (*occupancy_max_active_clusters)(int* clusters, DriverFunction function, const LaunchConfig* config);
  Result (*get_error_string)(Result error, const char** text);
  Result (*get_error_name)(Result error, const char** text);

  std::string error_text(Result error) const;  // "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
};

struct Nvrtc {
  const char* (*get_error_string)(Result error);
  Result (*version)(int* major, int* minor);
  Result (*get_num_supported_archs)(int* count);
  Result (*get_supported_archs)(int* capabilities);  // ascending
  Result (*create_program)(NvrtcProgram* program, const char* source, const char* name, int num_headers,
                           const char* const* headers, const char* const* include_names);
  Result (*destroy_program)(NvrtcProgram* program);
  Result (*compile_program)(NvrtcProgram program, int num_options, const char* const* options);
  Result (*get_ptx_size)(NvrtcProgram program, std::size_t* bytes);  // with the 0 at its end
  Result (*get_ptx)(NvrtcProgram program, char* ptx);
  Result (*get_cubin_size)(NvrtcProgram program, std::size_t* bytes);
  Result (*get_cubin)(NvrtcProgram program, char* cubin);
  Result (*get_program_log_size)(NvrtcProgram program, std::size_t* bytes);  // with the 0 at its end
  Result (*get_program_log)(NvrtcProgram program, char* log);
};

// Nothing where they cannot be had; `why` then says what was looked for and what the loader answered. A library that is
// opened stays open.
std::optional<Driver> open_driver(std::string& why);
// No newer than `newest_major`, since a driver does not run what the compiler of a later major version makes.
// $HOTLOOP_NVRTC may name the library, which then is the only one that is tried, or a folder with it, in it or beside
// it in the packages `nvidia` of Python. Without it the loader's own folders, $CUDA_HOME/lib64 and
// /usr/local/cuda/lib64 are searched.
std::optional<Nvrtc> open_nvrtc(int newest_major, std::string& why);

}  // namespace hotloop::cuda
