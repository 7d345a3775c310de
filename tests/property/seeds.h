// Which random programs a test takes: those that once failed and a few more; or, from the environment, HOTLOOP_SEED=N begins with that
// program and HOTLOOP_RUNS=M takes so many.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <vector>

namespace hotloop::testing {

template <class Check>
void for_seeds(Check check, std::uint64_t count, std::initializer_list<std::uint64_t> that_failed = {}) {
  const char* first = std::getenv("HOTLOOP_SEED");
  const char* runs = std::getenv("HOTLOOP_RUNS");
  std::vector<std::uint64_t> seeds = that_failed;
  if (first || runs) seeds.clear();
  const std::uint64_t from = first ? std::strtoull(first, nullptr, 10) : 1;
  count = runs ? std::strtoull(runs, nullptr, 10) : first ? 1 : count;
  for (std::uint64_t s = from; s < from + count; ++s) seeds.push_back(s);
  for (const std::uint64_t seed : seeds) {
    try {
      check(seed);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "HOTLOOP_SEED=" << seed << ": " << error.what();
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace hotloop::testing
