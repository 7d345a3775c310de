// The state of a Preparation: a recipe and what was fitted to training rows.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/columns.h"
#include "hotloop/data.h"

namespace hotloop::data {

struct Preparation::State {
  Recipe recipe;                        // inputs written out
  double time_step = 0;                 // seconds; 0: differences of time do not matter
  std::map<std::string, double> means;  // of columns that are filled with them
  Categories categories;
  std::vector<std::string> classes;
  std::vector<Standardization> input_scales, target_scales;
  std::int64_t longest = 0;  // series of the table
  // For describe().
  std::int64_t num_rows = 0, num_groups = 0, num_gaps = 0;
  std::map<std::string, std::int64_t> num_missing;  // by column
};

}  // namespace hotloop::data
