#include "refused_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace hotloop::testing {
namespace {

constexpr int no_limit = 1 << 30;
std::atomic<int> g_left{no_limit}, g_refused{0};

}  // namespace

RefusedThreads::RefusedThreads(int num_started) {
  g_refused = 0;
  g_left = num_started;
}
RefusedThreads::~RefusedThreads() { g_left = no_limit; }
int RefusedThreads::num_refused() { return g_refused; }

}  // namespace hotloop::testing

// In place of the C library's, in this program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) {
  using namespace hotloop::testing;
  if (g_left < no_limit && g_left-- <= 0) {
    g_left = 0;
    ++g_refused;
    return EAGAIN;
  }
  static const auto original = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return original(thread, attributes, run, argument);
}
