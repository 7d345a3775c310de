// Reading a TOML file section by section: every key is asked for once, with its default and one line of explanation;
// what was never asked for is an error, and what was read can be printed again with every default in place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "hotloop/error.h"

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
  // A text alone is a list of one. Each is one of `choices`, if there are any.
  std::vector<std::string> text_or_texts(const std::string& key, const std::string& doc,
                                         std::optional<std::vector<std::string>> fallback = {},
                                         const std::vector<std::string>& choices = {});
  std::vector<double> numbers(const std::string& key, const std::string& doc,
                              std::optional<std::vector<double>> fallback = {});
  // The component's settings, all keys but those asked for before, checked against its parameters.
  std::map<std::string, Setting> settings(const std::vector<Parameter>& parameters);
  // Replaces what is printed of a key that was read.
  void print_as(const std::string& key, const std::string& text);

  // "demand.toml:12 [train]" for messages.
  std::string where() const;
  [[noreturn]] void refuse(const std::string& key, const std::string& requirement, const std::string& received,
                           const std::string& remedy = "") const;
  // What a component says about its settings, with the place of the setting that it names.
  [[noreturn]] void refuse(const UserError& error) const;
  // The key of the table that a component's message is about; none: "".
  std::string key_named_by(const UserError& error) const;

  bool has(const std::string& key) const;
  // "demand.toml:12 [optimizer]" of a key, or of the table if it does not have it.
  std::string where(const std::string& key) const;

  struct Impl;
  explicit Section(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  friend class ConfigFile;
  std::shared_ptr<Impl> impl_;
};

class ConfigFile {
 public:
  // UserError with file and line for text that is no TOML.
  static ConfigFile read(const std::filesystem::path& path);
  static ConfigFile parse(std::string_view text, const std::string& source);

  // Replaces or adds one value before anything is read: "optimizer.learning_rate=1e-4", "model.0.hidden=64" (the first
  // [[model]]). What is right of = is a TOML value, or else a text. Later complaints name `given_as`
  // ("--set model.0.hidden=64"), not the file.
  void set(const std::string& assignment, const std::string& given_as);

  // The table `name` ("data"), empty if the file has none. `doc` heads it when it is printed.
  Section section(const std::string& name, const std::string& doc);
  // The tables of the array `name` ("model" for [[model]]).
  std::vector<Section> sections(const std::string& name, const std::string& doc);
  // The tables of the array `key` inside one of an array: [[model.layer]] below a [[model]].
  std::vector<Section> sections(const Section& parent, const std::string& key, const std::string& doc);
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
