// What a team of threads costs: a run of nothing by two workers, back to back, where the second one is awake, and after pauses in which it went to
// sleep; and a barrier. Microseconds: the least, and half and nine tenths of all calls are below.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "runtime/thread_team.h"

namespace {

using hotloop::runtime::ThreadTeam;
using Clock = std::chrono::steady_clock;

double microseconds_of(const auto& call) {
  const Clock::time_point start = Clock::now();
  call();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void print(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto below = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf("%-44s %8.2f %8.2f %8.2f\n", what, times.front(), below(0.5), below(0.9));
}

}  // namespace

int main() {
  ThreadTeam team(2);
  const auto run = [&] {
    team.try_run(
        2, [](void*, int) {}, nullptr);
  };
  std::printf("%-44s %8s %8s %8s   (%d cores)\n", "us", "least", "half", "0.9", hotloop::runtime::num_cores());
  std::vector<double> times;
  for (int i = 0; i < 20000; ++i) times.push_back(microseconds_of(run));
  print("a run of two workers, back to back", times);
  for (const int pause_us : {20, 1000}) {
    times.clear();
    for (int i = 0; i < 500; ++i) {
      const Clock::time_point until = Clock::now() + std::chrono::microseconds(pause_us);
      while (Clock::now() < until) {
      }
      times.push_back(microseconds_of(run));
    }
    print(pause_us < 100 ? "after 20 us of other work (awake)" : "after 1 ms of other work (asleep)", times);
  }
  times.clear();
  constexpr int barriers = 100;
  for (int i = 0; i < 500; ++i)
    times.push_back(microseconds_of([&] {
                      team.try_run(
                          2,
                          [](void* own, int) {
                            for (int k = 0; k < barriers; ++k) ThreadTeam::barrier(own);
                          },
                          &team);
                    }) /
                    barriers);
  print("a barrier", times);
}
