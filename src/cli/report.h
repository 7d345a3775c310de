// Text for people: tables of results and of where the time went, in 80 columns.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/baselines.h"
#include "cli/job.h"
#include "hotloop/jit.h"

namespace hotloop::cli {

std::string grouped(std::int64_t number);  // 17,520
// With so many decimals; with as many significant digits where these would say little (0.00002) or too much (123456.7891).
std::string score_text(double value, int decimals = 4);
// Lines of at most 80 columns, broken at blanks, each after the first indented; the first begins in that column too.
std::string wrapped(const std::string& text, std::size_t indent);
std::string describe_model(const Job& job, const Tree<Array>& params);
// What a text takes on a terminal, where the signs of East Asian scripts are as wide as two letters; cut at a whole character to at most so many
// columns, with `end` then; and filled up with blanks to that width, behind it or before.
std::size_t num_columns(std::string_view text);
std::string shortened(const std::string& text, std::size_t columns, std::string_view end = "..");
std::string padded(const std::string& text, std::size_t columns, bool right = false);
// JSON as it is written to a file and to the standard output: a path need not be UTF-8, what of it is none becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);
void print_json(const nlohmann::ordered_json& json, std::FILE* out = stdout);
// Results side by side, the best first column wide enough for all names.
std::string results_table(const std::string& heading, std::span<const TestResult> results);
std::string times_table(const train::FitTimes& times);
// One line for each program that ran, from the records of some launches.
std::string kernels_table(std::span<const KernelRecord> records);

}  // namespace hotloop::cli
