// CUDA C++ to code of a device, by NVRTC. Needs no device.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/device.h"
#include "backends/cuda/libraries.h"

namespace hotloop::cuda {

struct Image {
  std::string bytes;  // a cubin, or PTX for the driver to compile
  bool from_cache = false;
};

// Thread-safe.
class Compiler {
 public:
  explicit Compiler(const Nvrtc& nvrtc);
  const std::string& version() const { return version_; }  // "NVRTC 13.0"
  int major() const { return major_; }
  // The least compute capability that it compiles for; 10 * major + minor.
  int oldest_capability() const { return capabilities_.front(); }
  // The architecture to compile for: sm_90, whose code is a cubin; compute_90, the newest it knows, whose PTX later
  // devices run, too.
  std::string architecture(int capability) const;
  // Arithmetic is IEEE's, with the roundings that are written: no product is contracted with a sum, nothing flushes to
  // 0. Functions without an execution space are the device's. InternalError, with the log, for a source that does not
  // compile; UserError where the installation is broken or memory ends.
  Image compile(const std::string& source, int capability, const CodeOptions& options) const;

 private:
  std::string run(const std::string& source, const std::vector<std::string>& options) const;
  void check(Result result, const std::string& log) const;

  Nvrtc nvrtc_;
  std::string version_;
  int major_ = 0;
  std::vector<int> capabilities_;  // ascending
};

}  // namespace hotloop::cuda
