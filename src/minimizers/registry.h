// The generated lists of methods, and how they are built from names.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "hotloop/minimize.h"

namespace hotloop::minimizers {

struct DescentDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Descent(const Config&)> make;
};

// Each file src/minimizers/descent/<name>.cpp defines `std::vector<DescentDef> descents_<name>()`.
using DescentFile = std::vector<DescentDef> (*)();
std::vector<DescentFile> descent_files();  // generated

std::span<const DescentDef> all_descents();
const DescentDef& descent_def(std::string_view name);
Descent make_descent(const std::string& name, const std::map<std::string, Setting>& settings = {});

struct LeastSquaresDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<LeastSquares(const Config&)> make;
};

// Each file src/minimizers/least_squares/<name>.cpp defines `std::vector<LeastSquaresDef> least_squares_<name>()`.
using LeastSquaresFile = std::vector<LeastSquaresDef> (*)();
std::vector<LeastSquaresFile> least_squares_files();  // generated

std::span<const LeastSquaresDef> all_least_squares();
const LeastSquaresDef& least_squares_def(std::string_view name);
LeastSquares make_least_squares(const std::string& name, const std::map<std::string, Setting>& settings = {});

}  // namespace hotloop::minimizers
