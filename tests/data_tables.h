// Small tables, recipes for them and the samples they give, for tests of hotloop::data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "hotloop/data.h"

namespace hotloop::data {

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// One sample's inputs [length, features], and its targets.
inline std::vector<double> inputs_of(const Dataset& part, std::int64_t i) {
  Array x(part.input_dtype(), part.input_shape());
  part.gather(std::span(&i, 1), {.inputs = x.raw()});
  std::vector<double> out;
  for (std::int64_t k = 0; k < x.size(); ++k) out.push_back(x.at(k));
  return out;
}
inline std::vector<double> targets_of(const Dataset& part, std::int64_t i) {
  Array y(part.target_dtype(), part.target_shape());
  part.gather(std::span(&i, 1), {.targets = y.raw()});
  std::vector<double> out;
  for (std::int64_t k = 0; k < y.size(); ++k) out.push_back(y.at(k));
  return out;
}

// The table with a last column "y" of the cells of "v", for targets that can be inputs, too: tests see at which rows both are.
inline std::string with_copy(const std::string& text) {
  const auto cells = [](const std::string& line) {
    std::vector<std::string> all(1);
    for (const char c : line)
      if (c == ',')
        all.emplace_back();
      else
        all.back() += c;
    return all;
  };
  std::istringstream lines(text);
  std::string header, out;
  std::getline(lines, header);
  const std::vector<std::string> names = cells(header);
  const auto column = static_cast<std::size_t>(std::ranges::find(names, "v") - names.begin());
  out = header + ",y\n";
  for (std::string line; std::getline(lines, line);) out += line + "," + cells(line).at(column) + "\n";
  return out;
}

inline Samples from_csv(const std::string& text, const Recipe& recipe) {
  const bool copied = recipe.targets == std::vector<std::string>{"y"};
  return Samples(*open_csv_text(copied ? with_copy(text) : text, "t.csv"), recipe);
}

// Two groups whose rows alternate, an hour apart, with a gap of three hours in "b" after its fourth row.
inline std::string two_groups() {
  std::string text = "when,place,v\n";
  for (int i = 0; i < 10; ++i) {
    text += "2020-01-01T" + std::string(i < 10 ? "0" : "") + std::to_string(i) + ":00,a," + std::to_string(i) + "\n";
    const int hour = i < 4 ? i : i + 2;
    text += "2020-01-01 " + std::string(hour < 10 ? "0" : "") + std::to_string(hour) + ":00:00Z,b," +
            std::to_string(100 + i) + "\n";
  }
  return text;
}

inline Recipe plain(std::int64_t length) {
  Recipe recipe{.inputs = {"v"}, .targets = {"y"}, .length = length};
  recipe.standardize = false;
  recipe.dtype = DType::F64;
  recipe.split.train = 1;
  recipe.split.validation = 0;
  return recipe;
}

inline const char* const series_text =
    "id,t,x,y,label,part\n"
    "s1,0,1,10,no,train\ns1,1,2,20,no,train\n"
    "s2,0,3,30,yes,train\ns2,1,4,40,yes,train\ns2,2,5,50,yes,train\n"
    "s3,0,6,60,yes,test\n";

inline Recipe series_recipe() {
  Recipe recipe{.inputs = {"x", "y"}, .targets = {"label"}, .sample = "id", .task = Task::Classification};
  recipe.dtype = DType::F64;
  recipe.split = {.by = Split::By::Column, .validation = 0, .column = "part"};
  return recipe;
}

}  // namespace hotloop::data
