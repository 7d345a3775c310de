#include "data/number.h"

#include <fast_float/fast_float.h>
#include <algorithm>
#include <cmath>
#include <string>

namespace hotloop::data {
namespace {

constexpr std::string_view no_break_space = "\xC2\xA0", narrow_no_break_space = "\xE2\x80\xAF";
constexpr std::string_view units[] = {"$", "\xE2\x82\xAC", "\xC2\xA3", "\xC2\xA5", "%", "USD", "EUR", "GBP"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Without signs, currencies and the like at its ends.
std::string_view bare(std::string_view text) {
  for (std::size_t before = text.size() + 1; before != text.size();) {
    before = text.size();
    text = trimmed(text);
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    for (const std::string_view unit : units) {
      if (text.starts_with(unit)) text.remove_prefix(unit.size());
      if (text.ends_with(unit)) text.remove_suffix(unit.size());
    }
  }
  return text;
}

// Digits, then groups of three behind one separator, then perhaps decimals behind another.
bool has_thousands(std::string_view text) {
  std::size_t at = static_cast<std::size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
  if (at < 1 || at > 3 || at == text.size()) return false;
  const char separator = text[at];
  if (std::string_view(",.' ").find(separator) == std::string_view::npos) return false;
  while (at < text.size() && text[at] == separator) {
    const std::string_view group = text.substr(at + 1, 3);
    if (group.size() < 3 || !std::ranges::all_of(group, is_digit)) return false;
    at += 4;
  }
  if (at == text.size()) return true;
  return (text[at] == '.' || text[at] == ',') && std::ranges::all_of(text.substr(at + 1), is_digit);
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = fast_float::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool is_formatted_number(std::string_view text) {
  if (parse_number(text)) return false;
  std::string plain(text);
  replace_all(plain, no_break_space, " ");
  replace_all(plain, narrow_no_break_space, " ");
  const std::string number(bare(plain));
  if (number.empty() || !is_digit(number[0])) return false;
  std::string with_point = number;
  if (std::ranges::count(number, ',') == 1) std::ranges::replace(with_point, ',', '.');
  return parse_number(with_point).has_value() || has_thousands(number);
}

}  // namespace hotloop::data
