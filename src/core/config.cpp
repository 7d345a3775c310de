#include "core/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "core/nearest.h"
#include "core/print_number.h"
#include "hotloop/error.h"

namespace hotloop {
namespace {

std::string print(const Setting& setting) {
  if (const bool* b = std::get_if<bool>(&setting)) return *b ? "true" : "false";
  if (const std::int64_t* i = std::get_if<std::int64_t>(&setting)) return std::to_string(*i);
  if (const double* d = std::get_if<double>(&setting)) {
    const std::string text = print_number(*d);
    return text.find_first_not_of("-0123456789") == text.npos ? text + ".0" : text;  // no integer
  }
  return "\"" + std::get<std::string>(setting) + "\"";
}

// The number of the kind of `like` that a text means, with a decimal comma or in quotes by mistake.
std::optional<std::string> number_in(std::string text, const Setting& like) {
  std::ranges::replace(text, ',', '.');
  const auto printed = [&](auto number) -> std::optional<std::string> {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_whole = error == std::errc() && end == text.data() + text.size();
    if (!is_whole || !std::isfinite(static_cast<double>(number))) return std::nullopt;
    return print(Setting(number));
  };
  if (std::holds_alternative<std::int64_t>(like)) return printed(std::int64_t{});
  return std::holds_alternative<double>(like) ? printed(0.0) : std::nullopt;
}

std::string subject(const Parameter& parameter) { return "'" + parameter.name + "' (" + parameter.doc + ")"; }

std::string remedy(const Parameter& p, const std::string& given = {}) {
  if (!p.choices.empty()) return list_hint(p.choices);
  return setting_remedy(p.name, p.fallback, p.required ? nullptr : &p.fallback, given);
}

Setting checked(const std::string& where, const Parameter& parameter, const Setting& setting) {
  if (setting.index() != parameter.fallback.index()) {
    const std::int64_t* integer = std::get_if<std::int64_t>(&setting);
    if (integer != nullptr && std::holds_alternative<double>(parameter.fallback)) return static_cast<double>(*integer);
    const std::string* text = std::get_if<std::string>(&setting);
    throw UserError(where, subject(parameter) + " must be " + std::string(type_name(parameter.fallback)),
                    print(setting), remedy(parameter, text != nullptr ? *text : ""));
  }
  if (const std::string* text = std::get_if<std::string>(&setting))
    if (!parameter.choices.empty() && std::ranges::find(parameter.choices, *text) == parameter.choices.end())
      throw UserError(where, subject(parameter) + " must be one of its choices", print(setting),
                      nearest_hint(*text, parameter.choices));
  return setting;
}

}  // namespace

std::string setting_remedy(const std::string& name, const Setting& like, const Setting* fallback,
                           const std::string& given) {
  constexpr std::string_view examples[] = {"true or false", "8, or any other whole number without quotes",
                                           "0.1, or any other number without quotes", "\"<text>\""};
  if (const std::optional<std::string> number = number_in(given, like)) return name + " = " + *number;
  if (fallback != nullptr) return name + " = " + print(*fallback) + ", the default";
  return name + " = " + std::string(examples[like.index()]);
}

std::string_view type_name(const Setting& setting) {
  constexpr std::string_view names[] = {"true or false", "an integer", "a number", "a text"};
  return names[setting.index()];
}

Config::Config(const std::string& where, std::span<const Parameter> parameters,
               const std::map<std::string, Setting>& settings) {
  std::vector<std::string> names;
  for (const Parameter& p : parameters) names.push_back(p.name);
  for (const auto& [name, setting] : settings) {
    const auto it = std::ranges::find(parameters, name, &Parameter::name);
    if (it == parameters.end())
      throw UserError(where, "every setting must be one that '" + where + "' has", "'" + name + "'",
                      nearest_hint(name, names));
    values_[name] = checked(where, *it, setting);
  }
  for (const Parameter& p : parameters) {
    if (values_.contains(p.name)) continue;
    if (p.required) throw UserError(where, subject(p) + " must be given", "no value", remedy(p));
    values_[p.name] = p.fallback;
  }
}

const Setting& Config::at(const std::string& name) const {
  const auto it = values_.find(name);
  HOTLOOP_CHECK(it != values_.end(), "setting '" + name + "' is not a parameter");
  return it->second;
}

bool Config::flag(const std::string& name) const { return std::get<bool>(at(name)); }
std::int64_t Config::integer(const std::string& name) const { return std::get<std::int64_t>(at(name)); }
double Config::number(const std::string& name) const { return std::get<double>(at(name)); }
const std::string& Config::text(const std::string& name) const { return std::get<std::string>(at(name)); }

}  // namespace hotloop
