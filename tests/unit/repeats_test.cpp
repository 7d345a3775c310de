// Steps that a list of nodes repeats: found as by looking at every place for every period, in a time that grows with the list.
#include "ops/composed/repeats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hotloop/ops.h"
#include "ir/op_def.h"

namespace hotloop::ir {
namespace {

// Nodes of unary functions, one for each letter.
struct Chain {
  std::shared_ptr<Graph> graph;
  std::vector<const Node*> nodes;
};

Chain chain_of(const std::string& letters) {
  Chain chain;
  chain.graph = trace(
      [&](std::span<const Value> v) {
        Value x = v[0];
        for (const char c : letters) x = c == 'a' ? sin(x) : c == 'b' ? cos(x) : c == 'c' ? exp(x) : tanh(x);
        return std::vector<Value>{x};
      },
      std::vector{ValueType{DType::F64, {}}});
  for (const auto& node : chain.graph->nodes())
    if (!is(*node, OpKind::Input)) chain.nodes.push_back(node.get());
  return chain;
}

std::vector<Run> by_every_place(const std::string& letters) {
  const int n = static_cast<int>(letters.size());
  std::vector<Run> found;
  for (int period = 1; period * fewest_steps <= n; ++period)
    for (int i = 0; i + period < n;) {
      int same = 0;
      while (i + same + period < n &&
             letters[static_cast<std::size_t>(i + same)] == letters[static_cast<std::size_t>(i + same + period)])
        ++same;
      if (same / period + 1 >= fewest_steps) found.push_back({i, period, same / period + 1});
      i += same + 1;
    }
  std::ranges::stable_sort(found, std::greater{}, [](const Run& r) { return r.period * (r.count - 2); });
  return found;
}

// Repeated pieces of repeated pieces, now and then with another letter.
std::string random_letters(std::mt19937_64& rng) {
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng); };
  const int kinds = 1 + below(3);
  const auto letter = [&] { return static_cast<char>('a' + below(kinds)); };
  std::string all;
  for (int part = 0; part < 1 + below(3); ++part) {
    std::string step;
    for (int i = 0; i < 1 + below(5); ++i) step += letter();
    for (int level = 0; level < 1 + below(2); ++level) {
      std::string repeated;
      for (int k = 0, times = 1 + below(14); k < times; ++k) repeated += step;
      step = repeated + (below(2) ? std::string(1, letter()) : "");
    }
    all += step;
  }
  for (int i = 0, changes = below(3); i < changes; ++i)
    all[static_cast<std::size_t>(below(static_cast<int>(all.size())))] = 'd';
  return all;
}

TEST(Repeats, AreThoseThatEveryPlaceAndPeriodShow) {
  std::mt19937_64 rng(1);
  int num_found = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const std::string letters = random_letters(rng);
    const Chain chain = chain_of(letters);
    const auto wanted = by_every_place(letters), found = find_repeats(chain.nodes);
    ASSERT_EQ(found.size(), wanted.size()) << letters;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].start, wanted[i].start) << letters;
      EXPECT_EQ(found[i].period, wanted[i].period) << letters;
      EXPECT_EQ(found[i].count, wanted[i].count) << letters;
    }
    num_found += static_cast<int>(found.size());
  }
  EXPECT_GT(num_found, 1000);
}

TEST(Repeats, OfALongListTakeNoTime) {
  // No step of fewer than a quarter of the list is there eight times.
  std::mt19937_64 rng(2);
  std::string letters, step;
  for (int i = 0; i < 25000; ++i) step += static_cast<char>('a' + std::uniform_int_distribution<int>(0, 3)(rng));
  for (int k = 0; k < 4; ++k) letters += step;
  for (const std::string& list : {letters, std::string(letters.size(), 'a')}) {
    const Chain chain = chain_of(list);
    const auto start = std::chrono::steady_clock::now();
    find_repeats(chain.nodes);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  }
}

}  // namespace
}  // namespace hotloop::ir
