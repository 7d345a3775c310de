// How a table becomes samples: the steps that Samples' constructor takes, in order.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "data/parts.h"
#include "data/preparation.h"
#include "data/row_store.h"
#include "data/split.h"

namespace hotloop::data {

struct Samples::State {
  std::shared_ptr<const Preparation::State> fitted;
  std::unique_ptr<Preparation> preparation;
  PartDataset parts[3];  // by Part
  std::int64_t num_rows = 0;
  std::vector<std::int64_t> source_row;  // of each position; empty: the same
  std::unique_ptr<RowStore> kept;        // [recipe.kept] doubles, by position
};

// The source's rows as they were read, in its order: doubles, one a request, and the line.
struct RawTable {
  std::string name;
  bool has_lines = false;
  std::unique_ptr<RowStore> rows;
  std::vector<std::vector<std::string>> labels;  // of each request
  std::vector<std::int64_t> series_rows;         // rows of each series
  bool alternating = false;                      // rows of different series between each other
  std::string place(std::int64_t row, double line) const;
};

RawTable read_table(RowSource& source, const Columns& columns, const std::shared_ptr<MemoryBudget>& budget,
                    bool whole_series);
// Seconds between neighbouring rows; 0 if differences do not matter.
double find_time_step(const Recipe& recipe, const RawTable& table, const Columns& columns);

// The samples of a table; or those with what was fitted to another table.
std::shared_ptr<Samples::State> build_samples(RowSource& source, const Recipe& recipe, const MemoryOptions& memory);
std::shared_ptr<Samples::State> build_samples(RowSource& source, const Preparation::State& fitted, const Split& split,
                                              std::int64_t stride, const MemoryOptions& memory);

// Where a derived row, doubles, has its parts: features and targets not yet standardised, and what decides about windows. The
// rows lie by position: those of a series one after another.
struct DerivedLayout {
  std::size_t features = 0, targets = 0, kept = 0;
  std::size_t target(std::size_t k) const { return features + k; }
  std::size_t keep(std::size_t q) const { return features + targets + q; }
  std::size_t weight() const { return features + targets + kept; }
  std::size_t part() const { return weight() + 1; }
  std::size_t run() const { return weight() + 2; }  // rows since the last gap, this one included
  std::size_t width() const { return weight() + 3; }
};

// Calls use(first position, count, doubles [count, width]) for all rows of a store of doubles, a block at a time.
template <class F> void for_each_block(const RowStore& store, F&& use) {
  constexpr std::int64_t block = 2048;
  std::vector<double> values(static_cast<std::size_t>(block) * store.row_bytes() / sizeof(double));
  for (std::int64_t first = 0; first < store.num_rows(); first += block) {
    const std::int64_t count = std::min(block, store.num_rows() - first);
    store.read(first, count, values.data());
    use(first, count, static_cast<const double*>(values.data()));
  }
}

}  // namespace hotloop::data
