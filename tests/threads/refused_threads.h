// A system that starts no more threads.
#pragma once

namespace hotloop::testing {

// While one lives, so many more threads start; then the system says that it has no room for another.
class RefusedThreads {
 public:
  explicit RefusedThreads(int num_started);
  ~RefusedThreads();
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;
  static int num_refused();  // since the last one was made
};

}  // namespace hotloop::testing
