// Settings of a component that is built from a configuration file: what a layer, loss or optimiser accepts, and what it got.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hotloop {

using Setting = std::variant<bool, std::int64_t, double, std::string>;
std::string_view type_name(const Setting& setting);  // "true or false", "an integer", "a number", "a text"
// What to write where a setting of the type of `like` was wanted: the number that the text `given` means, "0,01" or "1e-3", else the
// default, else an example.
std::string setting_remedy(const std::string& name, const Setting& like, const Setting* fallback,
                           const std::string& given = {});

// One setting that a component accepts. Its type is that of the default; a required one has no default, and the value in
// `fallback` only tells its type.
struct Parameter {
  std::string name;
  Setting fallback;
  std::string doc;  // one line, with the unit if there is one
  bool required = false;
  std::vector<std::string> choices = {};  // of a text; empty: any
};

// Checked settings of one component: every parameter has a value.
class Config {
 public:
  // `where` names the component in messages. UserError for an unknown name (with the nearest one), a missing required
  // parameter, another type (an integer is accepted for a number) or a text that is not among the choices.
  Config(const std::string& where, std::span<const Parameter> parameters,
         const std::map<std::string, Setting>& settings);

  bool flag(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  const std::string& text(const std::string& name) const;

 private:
  const Setting& at(const std::string& name) const;
  std::map<std::string, Setting> values_;
};

}  // namespace hotloop
