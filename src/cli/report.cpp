#include "cli/report.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/utf8.h"

namespace hotloop::cli {

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string wrapped(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::size_t length = num_columns(std::string_view(text).substr(at, end - at));
    if (column > indent && column + 1 + length > 80) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, end - at);
    column += length;
    at = end + 1;
  }
  return out;
}

std::string score_text(double value, int decimals) {
  const double size = std::abs(value);
  if (size > 0 && size < 0.01) return fmt::format("{:.{}g}", value, decimals);
  if (size >= 1000 && std::isfinite(size))
    return size < 1e7 ? fmt::format("{:.1f}", value) : fmt::format("{:.{}e}", value, decimals);
  return fmt::format("{:.{}f}", value, decimals);
}

namespace {

// Code points that terminals show two columns wide: Unicode's East Asian Width W and F, as wholes of blocks.
bool is_wide(std::uint32_t c) {
  constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 10> wide = {{{0x1100, 0x115F},
                                                                             {0x2E80, 0x303E},
                                                                             {0x3041, 0xA4CF},
                                                                             {0xA960, 0xA97F},
                                                                             {0xAC00, 0xD7A3},
                                                                             {0xF900, 0xFAFF},
                                                                             {0xFE30, 0xFE6F},
                                                                             {0xFF00, 0xFF60},
                                                                             {0x1F300, 0x1FAFF},
                                                                             {0x20000, 0x3FFFD}}};
  return std::ranges::any_of(wide, [&](const auto& block) { return block.first <= c && c <= block.second; });
}

// Of the character at the front: its bytes, and the columns it takes. A byte that is no UTF-8 counts as one of each.
std::pair<std::size_t, std::size_t> character(std::string_view text) {
  const std::size_t bytes = utf8_sequence(text);
  if (bytes < 2) return {1, 1};
  std::uint32_t code = static_cast<unsigned char>(text[0]) & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  return {bytes, is_wide(code) ? 2 : 1};
}

}  // namespace

std::size_t num_columns(std::string_view text) {
  std::size_t total = 0;
  while (!text.empty()) {
    const auto [bytes, columns] = character(text);
    total += columns;
    text.remove_prefix(bytes);
  }
  return total;
}

std::string shortened(const std::string& text, std::size_t columns, std::string_view end) {
  if (num_columns(text) <= columns) return text;
  std::size_t at = 0;
  for (std::size_t used = end.size();;) {
    const auto [bytes, more] = character(std::string_view(text).substr(at));
    if (used + more > columns) return text.substr(0, at).append(end);
    used += more;
    at += bytes;
  }
}

std::string padded(const std::string& text, std::size_t columns, bool right) {
  const std::size_t own = num_columns(text);
  const std::string blanks(own < columns ? columns - own : 0, ' ');
  return right ? blanks + text : text + blanks;
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void print_json(const nlohmann::ordered_json& json, std::FILE* out) { fmt::print(out, "{}", json_text(json)); }

bool is_usual(const nn::LayerConfig& layer, const std::string& setting, bool flag) {
  for (const Parameter& p : nn::layer_def(layer.type).parameters)
    if (const bool* usual = std::get_if<bool>(&p.fallback); p.name == setting && usual != nullptr)
      return flag == *usual;
  return false;
}

std::string describe_model(const Job& job, const Tree<Array>& params) {
  std::string out;
  for (const nn::LayerConfig& layer : job.model) {
    out += (out.empty() ? "" : " -> ") + layer.type;
    // Sizes, and flags that are not as usual, are what tells two stacks apart; the rest is in export-config.
    for (const auto& [name, value] : layer.settings) {
      if (const std::int64_t* size = std::get_if<std::int64_t>(&value)) out += fmt::format(" {}={}", name, *size);
      const bool* flag = std::get_if<bool>(&value);
      if (flag != nullptr && !is_usual(layer, name, *flag)) out += *flag ? " " + name : fmt::format(" {}=false", name);
    }
  }
  std::int64_t count = 0;
  params.for_each([&](const std::string&, const Array& leaf) { count += leaf.size(); });
  return out + fmt::format("; {} parameters, {}", grouped(count), job.precision());
}

std::string results_table(const std::string& heading, std::span<const TestResult> results) {
  std::size_t width = 0;
  for (const TestResult& r : results) width = std::max(width, num_columns(r.name));
  std::string out = heading + "\n";
  for (const TestResult& r : results) out += fmt::format("  {}  {}\n", padded(r.name, width), score_text(r.value));
  return out;
}

std::string times_table(const train::FitTimes& times) {
  const double total = times.compile_s + times.gather_s + times.steps_s + times.validation_s;
  const double step_us = times.num_steps > 0 ? times.steps_s / static_cast<double>(times.num_steps) * 1e6 : 0;
  const auto row = [&](const char* name, double seconds, const std::string& note) {
    return fmt::format("  {:<12}{:>9.3f} s {:>5.1f} %{}{}", name, seconds, total > 0 ? 100 * seconds / total : 0,
                       note.empty() ? "" : "  ", note);
  };
  std::string out = "Where the time went\n";
  out += row("steps", times.steps_s,
             fmt::format("{} steps of {:.0f} us, optimiser included", grouped(times.num_steps), step_us)) +
         "\n";
  out += row("batches", times.gather_s, "waiting for samples to be gathered") + "\n";
  out += row("validation", times.validation_s, "") + "\n";
  out += row("compiling", times.compile_s, "") + "\n";
  return out;
}

std::string kernels_table(std::span<const KernelRecord> records) {
  struct Total {
    KernelRecord first;
    std::int64_t launches = 0;
    double time_us = 0, flops = 0;
  };
  std::vector<Total> totals;
  for (const KernelRecord& r : records) {
    auto it = std::ranges::find_if(totals, [&](const Total& t) { return t.first.name == r.name; });
    if (it == totals.end()) it = totals.insert(totals.end(), {r, 0, 0, 0});
    ++it->launches;
    it->time_us += r.time_us;
    it->flops += r.flops;
  }
  std::string out = fmt::format("  {:<25}{:>9}{:>10}{:>9}{:>8}{:>5}{:>6}{:>6}\n", "program", "launches", "us each",
                                "GFLOP/s", "workers", "dots", "loops", "grids");
  for (const Total& t : totals) {
    const bool known = t.time_us > 0 && !t.first.flops_are_bound;
    out += fmt::format("  {:<25}{:>9}{:>10.1f}{:>9}{:>8}{:>5}{:>6}{:>6}\n", t.first.name, grouped(t.launches),
                       t.time_us / static_cast<double>(t.launches),
                       known ? fmt::format("{:.2f}", t.flops / t.time_us * 1e-3) : "", t.first.num_workers,
                       t.first.num_dots, t.first.num_loops, t.first.num_grids);
  }
  return out;
}

}  // namespace hotloop::cli
