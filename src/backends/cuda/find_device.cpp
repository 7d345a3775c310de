// find_device: what is asked of a machine before programs may run on its device.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "backends/cuda/driver_device.h"
#include "backends/cuda/side_by_side.h"
#include "core/fork.h"
#include "hotloop/error.h"

namespace hotloop::cuda {
namespace {

struct Search {
  Device* device = nullptr;
  std::string why;  // there is none
};

std::atomic<Device*> g_given{nullptr};

int attribute_of(const Driver& driver, DriverDevice device, DeviceAttribute attribute) {
  int value = 0;
  return driver.device_get_attribute(&value, attribute, device) == 0 ? value : 0;
}

DeviceInfo info_of(const Driver& driver, DriverDevice device, const Compiler& compiler) {
  constexpr int first_of_clusters = 12;  // of NVRTC
  char name[256] = "";
  std::size_t bytes = 0;
  const bool has_clusters = driver.launch_kernel_ex != nullptr && driver.occupancy_max_active_clusters != nullptr &&
                            attribute_of(driver, device, DeviceAttribute::ClusterLaunch) != 0 &&
                            compiler.major() >= first_of_clusters;
  driver.device_get_name(name, sizeof name, device);
  driver.device_total_mem(&bytes, device);
  return {.name = name,
          .capability = 10 * attribute_of(driver, device, DeviceAttribute::ComputeCapabilityMajor) +
                        attribute_of(driver, device, DeviceAttribute::ComputeCapabilityMinor),
          .multiprocessors = attribute_of(driver, device, DeviceAttribute::MultiprocessorCount),
          .near_bytes = attribute_of(driver, device, DeviceAttribute::MaxSharedMemoryPerBlockOptin),
          .blocks_of_worker = has_clusters ? most_side_by_side : 1,
          .memory_bytes = static_cast<std::int64_t>(bytes),
          .versions = ""};
}

Search none(std::string why) { return {nullptr, std::move(why)}; }

Search search() {
  std::string why;
  const auto driver = open_driver(why);
  if (!driver) return none(why);
  int version = 0, count = 0;
  DriverDevice device = 0;
  const Result started = driver->init(0);
  if (started != 0) return none("the CUDA driver does not start (" + driver->error_text(started) + ")");
  note_use_of_driver();
  Result result = driver->driver_get_version(&version);
  if (result == 0) result = driver->device_get_count(&count);
  if (result == 0 && count == 0) return none("the CUDA driver finds no device");
  if (result == 0) result = driver->device_get(&device, 0);
  if (result != 0) return none("the CUDA driver shows no device (" + driver->error_text(result) + ")");

  const int major = version / 1000, minor = version % 1000 / 10;
  const auto nvrtc = open_nvrtc(major, why);
  if (!nvrtc) return none(why);
  const Compiler compiler(*nvrtc);
  DeviceInfo info = info_of(*driver, device, compiler);
  info.versions = "CUDA driver " + std::to_string(major) + "." + std::to_string(minor) + ", " + compiler.version();
  if (info.capability < compiler.oldest_capability())
    return none(compiler.version() + " compiles for compute capability " +
                std::to_string(compiler.oldest_capability()) + " (10 * major + minor) and later ones, and the " +
                info.name + " has " + std::to_string(info.capability));
  if (attribute_of(*driver, device, DeviceAttribute::CooperativeLaunch) == 0)
    return none("the " + info.name + " cannot run kernels whose blocks wait for one another");
  DriverContext context = nullptr;
  result = driver->device_primary_ctx_retain(&context, device);
  if (result != 0) return none("the " + info.name + " is not to be had (" + driver->error_text(result) + ")");
  return {make_device(Context(*driver, context), compiler, info).release(), ""};
}

// Never destroyed: what is on the device may outlive static objects, and at the exit the driver may end first.
const Search& machine_search() {
  static const Search* const found = new Search(search());
  return *found;
}

}  // namespace

Device* find_device(std::string* why) {
  if (Device* given = g_given.load(); given != nullptr) return given;
  std::string reason;
  Device* device = nullptr;
  const char* set = std::getenv("HOTLOOP_CUDA");
  if (set != nullptr && std::string_view(set) == "off") {
    reason = "HOTLOOP_CUDA=off hides it";
  } else {
    const NoFork no_fork;
    const Search& found = machine_search();
    device = is_forked_from_use() ? nullptr : found.device;
    reason = found.device != nullptr ? forked_text : found.why;
  }
  if (device == nullptr && why != nullptr) *why = reason;
  return device;
}

std::string device_key() {
  if (const Device* given = g_given.load(); given != nullptr)
    return "given " + std::to_string(reinterpret_cast<std::uintptr_t>(given));
  const char* set = std::getenv("HOTLOOP_CUDA");
  if (set != nullptr && std::string_view(set) == "off") return "off";
  const NoFork no_fork;
  return is_forked_from_use() ? "forked" : "the machine's";
}

void set_device(Device* device) { g_given.store(device); }

}  // namespace hotloop::cuda
