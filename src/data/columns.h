// What a recipe reads of a table and which features it makes of a row.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/data.h"

namespace hotloop::data {

// The columns that are read, and what each is for. Numbers are indices into `requests`, -1: none.
struct Columns {
  std::vector<ColumnRequest> requests;
  std::vector<Fill> fills;  // of each request
  int time = -1, group = -1, sample = -1, weight = -1, split = -1;
  std::vector<int> targets;
  int series() const { return sample >= 0 ? sample : group; }  // what windows and lags never cross
  int find(const std::string& name, ColumnKind kind) const;
  // One that is not there yet; gives its number.
  int add(ColumnRequest request, Fill fill);

 private:
  std::map<std::pair<std::string, ColumnKind>, int> positions_;
};

// Where the columns that are wanted lie among a source's `names`; UserError of `where` that the source must have one, with what it has. Without
// a hint the nearest name is offered.
std::vector<std::size_t> positions_of(std::span<const ColumnRequest> requests, const std::vector<std::string>& names,
                                      const std::string& where, const std::string& source, const std::string& received,
                                      const std::optional<std::string>& hint = {});

// For Purpose::Predict targets, weight, split and kept columns are left out.
enum class Purpose { Train, Predict };
Columns choose_columns(const Recipe& recipe, Purpose purpose);

struct Feature {
  enum class Kind { Column, Lag, Cycle, OneHot, Indicator };
  Kind kind = Kind::Column;
  std::string name;
  int column = -1;         // of the request
  std::int64_t steps = 0;  // of a lag
  int cycle = -1;          // of the recipe
  int harmonic = 1;
  bool cosine = false;
  int category = 0;  // of a one-hot column
  bool standardized() const { return kind != Kind::OneHot && kind != Kind::Indicator; }
  bool may_be_constant() const { return kind == Kind::Cycle || !standardized(); }
};

using Categories = std::map<std::string, std::vector<std::string>>;  // by one-hot column
std::vector<Feature> input_features(const Recipe& recipe, const Columns& columns, const Categories& categories);
std::vector<Feature> kept_features(const Recipe& recipe, const Columns& columns);
// For a target `ahead` rows after a window's last row: how many rows after it a kept feature is read so that a forecast may use it.
std::int64_t known_ahead(const Feature& kept, std::int64_t ahead, std::int64_t horizon);

// UserError for what no table could satisfy.
void check_recipe(const Recipe& recipe);
// UserError where an input holds the answer: a target's own row, which a window ends in with horizon 0, and a series in any case. Of
// training alone: what was trained before reads on.
void check_answers(const Recipe& recipe);
// The recipe with "x*" among its inputs written out.
Recipe expand_inputs(Recipe recipe, const RowSource& source);

struct ColumnRule {
  Fill fill = Fill::Refuse;
  bool indicator = false;
};
ColumnRule missing_rule(const Recipe& recipe, const std::string& column);

}  // namespace hotloop::data
