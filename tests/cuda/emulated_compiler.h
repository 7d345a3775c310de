// Kernels as the CUDA renderer prints them, compiled as C++ by the system's compiler and loaded.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "cuda/emulated_part.h"

namespace hotloop::cuda::emulated {

struct Loaded {
  ~Loaded();
  void* handle = nullptr;
  KernelFunction kernel = nullptr;
  Part* part = nullptr;
  int blocks = 1, threads = 0;  // of a worker; of a block
  std::size_t code_bytes = 0;
};

// Equal sources are compiled once a process.
std::shared_ptr<Loaded> compile_once(const std::string& source);

}  // namespace hotloop::cuda::emulated
