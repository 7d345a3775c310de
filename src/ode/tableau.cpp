#include "ode/tableau.h"

#include <algorithm>
#include <cmath>

#include "hotloop/error.h"

namespace hotloop::ode {
namespace {

using Weights = std::vector<double>;  // one a stage

// Of one rooted tree: its number of vertices, its density, and for each stage its elementary weight.
struct RootedTree {
  int size;
  double density;
  Weights at_stage;
};

Weights times(const std::vector<Weights>& a, const Weights& v) {
  Weights out(v.size());
  for (std::size_t i = 0; i < v.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) out[i] += a[i][j] * v[j];
  return out;
}

// All rooted trees with at most `most` vertices, by size. A tree is a root over a multiset of smaller ones, which are taken in
// order of their position so that each multiset comes once. `a`, `single`: see check_weights.
std::vector<RootedTree> rooted_trees(const std::vector<Weights>& a, const std::vector<Weights>& single, int most) {
  std::vector<RootedTree> trees;
  std::vector<Weights> below, alone;  // a and single times at_stage, of each tree
  const std::size_t stages = a.size();
  for (int size = 1; size <= most; ++size) {
    std::vector<RootedTree> found;
    const auto grow = [&](auto&& self, std::size_t first, int left, double density, const Weights& w) -> void {
      if (left == 0) {
        found.push_back({size, density * size, w});
        return;
      }
      for (std::size_t i = first; i < trees.size(); ++i) {
        if (trees[i].size > left) break;
        const Weights& child = trees[i].size == size - 1 ? alone[i] : below[i];
        Weights product = w;
        for (std::size_t s = 0; s < stages; ++s) product[s] *= child[s];
        self(self, i, left - trees[i].size, density * trees[i].density, product);
      }
    };
    grow(grow, 0, size - 1, 1, Weights(stages, 1));
    for (RootedTree& tree : found) {
      below.push_back(times(a, tree.at_stage));
      alone.push_back(times(single, tree.at_stage));
      trees.push_back(std::move(tree));
    }
  }
  return trees;
}

double dot(const Weights& a, const Weights& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

bool Tableau::fsal() const {
  return num_stages() > 1 && c.back() == 1 && b.back() == 0 && a.back() == Weights(b.begin(), b.end() - 1);
}

void Tableau::check(double tolerance) const {
  const auto require = [&](bool condition, const std::string& what) { HOTLOOP_CHECK(condition, name + ": " + what); };
  const std::size_t stages = b.size();
  require(c.size() == stages && a.size() == stages && (error.empty() || error.size() == stages),
          "sizes of the tableau");
  double largest = 1;
  for (std::size_t i = 0; i < stages; ++i) {
    require(a[i].size() == i, "row " + std::to_string(i) + " has that many entries");
    double sum = 0;
    for (const double x : a[i]) {
      sum += x;
      largest = std::max(largest, std::abs(x));
    }
    require(std::abs(sum - c[i]) <= tolerance * largest, "row " + std::to_string(i) + " sums to its c");
  }
  Weights embedded = error.empty() ? Weights() : b;
  for (std::size_t i = 0; i < error.size(); ++i) embedded[i] -= error[i];
  check_weights(name, a, a, {b, embedded, dense, order, embedded_order, dense_order}, tolerance * largest);
}

void check_weights(const std::string& name, const std::vector<std::vector<double>>& a,
                   const std::vector<std::vector<double>>& single, const StageWeights& weights, double tolerance) {
  const auto require = [&](bool condition, const std::string& what) { HOTLOOP_CHECK(condition, name + ": " + what); };
  const auto& [b, b_hat, dense, order, embedded_order, dense_order] = weights;
  for (const Weights& row : dense) require(row.size() == b.size(), "rows of the interpolant");
  for (const RootedTree& tree : rooted_trees(a, single, std::max({order, embedded_order, dense_order}))) {
    const std::string which = " condition of a tree of " + std::to_string(tree.size);
    if (tree.size <= order) require(std::abs(dot(b, tree.at_stage) - 1 / tree.density) <= tolerance, "order" + which);
    if (!b_hat.empty() && tree.size <= embedded_order)
      require(std::abs(dot(b_hat, tree.at_stage) - 1 / tree.density) <= tolerance, "embedded" + which);
    if (dense.empty() || tree.size > dense_order) continue;
    // sum_i b_i(x) w_i = x^size / density for all x, so coefficient by coefficient.
    for (std::size_t j = 0; j < dense.size(); ++j) {
      const double wanted = static_cast<int>(j) + 1 == tree.size ? 1 / tree.density : 0;
      require(std::abs(dot(dense[j], tree.at_stage) - wanted) <= 100 * tolerance, "interpolant's" + which);
    }
  }
  for (std::size_t i = 0; i < b.size() && !dense.empty(); ++i) {
    double end = 0;
    for (const Weights& row : dense) end += row[i];
    require(std::abs(end - b[i]) <= 100 * tolerance, "the interpolant ends at y1");
  }
}

std::vector<std::vector<double>> hermite(const std::vector<double>& b) {
  Weights first(b.size()), square(b.size()), cube(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) {
    square[i] = 3 * b[i];
    cube[i] = -2 * b[i];
  }
  first.front() += 1;
  square.front() -= 2;
  square.back() -= 1;
  cube.front() += 1;
  cube.back() += 1;
  return {first, square, cube};
}

std::vector<std::vector<double>> quartic(const std::vector<double>& b, const std::vector<double>& middle) {
  Weights first(b.size()), square(b.size()), cube(b.size()), fourth(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) {
    square[i] = 16 * middle[i] - 5 * b[i];
    cube[i] = 14 * b[i] - 32 * middle[i];
    fourth[i] = 16 * middle[i] - 8 * b[i];
  }
  first.front() += 1;
  square.front() -= 4;
  square.back() += 1;
  cube.front() += 5;
  cube.back() -= 3;
  fourth.front() -= 2;
  fourth.back() += 2;
  return {first, square, cube, fourth};
}

}  // namespace hotloop::ode
