// Part of every test program: with HOTLOOP_TEST_CUDA=emulated what asks for every way to run a program gets an emulated CUDA device; with any other value the
// machine's own.
#include <cstdlib>
#include <string_view>

#include "cuda/emulated_device.h"

namespace {
[[maybe_unused]] const bool emulated = [] {
  const char* wanted = std::getenv("HOTLOOP_TEST_CUDA");
  if (wanted == nullptr || std::string_view(wanted) != "emulated") return false;
  hotloop::cuda::set_device(hotloop::cuda::make_emulated_device({}).release());
  return true;
}();
}
