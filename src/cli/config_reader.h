// Reading a TOML file section by section: every key is asked for once, with its default and one line of explanation;
// what was never asked for is an error, and what was read can be printed again with every default in place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"

namespace hotloop::cli {

class ConfigFile;

// One table of the file, or the place where it would be.
class Section {
 public:
  // The value of `key`. Without a fallback the key must be there.
  std::string text(const std::string& key, const std::string& doc, std::optional<std::string> fallback = {},
                   const std::vector<std::string>& choices = {});
  std::int64_t integer(const std::string& key, const std::string& doc, std::optional<std::int64_t> fallback = {},
                       std::int64_t least = INT64_MIN);
  double number(const std::string& key, const std::string& doc, std::optional<double> fallback = {});
  bool flag(const std::string& key, const std::string& doc, std::optional<bool> fallback = {});
  std::vector<std::string> texts(const std::string& key, const std::string& doc,
                                 std::optional<std::vector<std::string>> fallback = {});
  std::vector<double> numbers(const std::string& key, const std::string& doc,
                              std::optional<std::vector<double>> fallback = {});
  // The component's settings, all keys but those asked for before, checked against its parameters.
  std::map<std::string, Setting> settings(const std::vector<Parameter>& parameters);
  // Replaces what the file says, for options of the command line; after the key was read, what is printed of it.
  void override_with(const std::string& key, const Setting& value);

  // "demand.toml:12 [train]" for messages.
  std::string where() const;
  [[noreturn]] void refuse(const std::string& key, const std::string& requirement, const std::string& received,
                           const std::string& remedy = "") const;

  struct Impl;
  explicit Section(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

class ConfigFile {
 public:
  // UserError with file and line for text that is no TOML.
  static ConfigFile read(const std::filesystem::path& path);
  static ConfigFile parse(std::string_view text, const std::string& source);

  // The table `name` ("data"), empty if the file has none. `doc` heads it when it is printed.
  Section section(const std::string& name, const std::string& doc);
  // The tables of the array `name` ("model" for [[model]]).
  std::vector<Section> sections(const std::string& name, const std::string& doc);
  // UserError for every key and table that nobody asked for, with the nearest name.
  void finish() const;
  // Everything that was asked for, as TOML with comments.
  std::string print() const;

  struct Impl;

 private:
  explicit ConfigFile(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// A TOML string, number or list.
std::string print_toml(const std::string& text);
std::string print_toml(double number);

}  // namespace hotloop::cli
