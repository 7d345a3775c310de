#include "runtime/choose_device.h"

#include <cstdio>
#include <utility>

#include "backends/cuda/cost.h"

namespace hotloop::runtime {
namespace {

std::string time_text(double ns) {
  char text[32];
  if (ns < 1e6)
    std::snprintf(text, sizeof text, "%.3g us", ns * 1e-3);
  else
    std::snprintf(text, sizeof text, "%.3g ms", ns * 1e-6);
  return text;
}

}  // namespace

bool has_choice_of_device(double cpu_ns) {
  // A launch and the copies alone take as long. Below, nobody asks for a device: looking for one takes a tenth of a second.
  constexpr double worth_asking_ns = 1e5;
  return cpu_ns >= worth_asking_ns && cuda::find_device() != nullptr;
}

DeviceChoice choose_device(const Graph& graph, const CompileOptions& options, double cpu_ns) {
  constexpr double worth_going = 2;
  DeviceChoice choice;
  if (!has_choice_of_device(cpu_ns)) return choice;
  cuda::Device* device = cuda::find_device();
  CompileOptions there = options;
  there.device = there.backend = there.target = "cuda";
  Lowered lowered = lower(graph, there, kernel::cuda_target());
  const cuda::DeviceInfo& info = device->info();
  // Half of it: others may have some, and a second call at once takes as much again.
  if (lowered.program.near_bytes > info.near_bytes ||
      2 * cuda::device_bytes(lowered.program) > static_cast<double>(info.memory_bytes)) {
    choice.why = "cpu, since " + info.name + " has no room for the program";
    return choice;
  }
  const cuda::DeviceTime time = cuda::estimate_time(lowered.program, lowered.program.max_rows, info);
  const bool goes = worth_going * time.all() < cpu_ns;
  choice.why = std::string(goes ? "cuda" : "cpu") + ", chosen: estimated " + time_text(cpu_ns) +
               " a call on the processor, " + time_text(time.all()) + " on " + info.name + " (kernel " +
               time_text(time.kernel_ns) + ", launch and copies " + time_text(time.launch_ns + time.copies_ns) + ")";
  if (goes) choice.on_device = std::move(lowered);
  return choice;
}

}  // namespace hotloop::runtime
