#include "cli/config_reader.h"

#include <toml++/toml.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/nearest.h"
#include "hotloop/error.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

template <class T> std::string print_list(const std::vector<T>& items) {
  std::string out = "[";
  for (std::size_t i = 0; i < items.size(); ++i) out += (i ? ", " : "") + print_toml(items[i]);
  return out + "]";
}

std::string print_setting(const Setting& setting) {
  if (const bool* b = std::get_if<bool>(&setting)) return *b ? "true" : "false";
  if (const std::int64_t* i = std::get_if<std::int64_t>(&setting)) return std::to_string(*i);
  if (const double* d = std::get_if<double>(&setting)) return print_toml(*d);
  return print_toml(std::get<std::string>(setting));
}

std::string show(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& n) { out << n; });
  std::string text = out.str();
  std::ranges::replace(text, '\n', ' ');
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string place(const std::string& source, const toml::node* node) {
  return node != nullptr && node->source().begin ? source + ":" + std::to_string(node->source().begin.line) : source;
}

struct Entry {
  std::string key, value, doc;
};

}  // namespace

struct Section::Impl {
  std::string source, name;
  toml::table* table = nullptr;  // null: the file has no such table
  bool listed = false;           // one of an array of tables
  std::string doc;
  std::vector<Entry> entries;
  std::map<std::string, Setting> overrides;

  void record(const std::string& key, const std::string& value, const std::string& doc_text) {
    entries.push_back({key, value, doc_text});
  }
  toml::node* find(const std::string& key) { return table != nullptr ? table->get(key) : nullptr; }
};

struct ConfigFile::Impl {
  std::string source;
  toml::table root;
  std::vector<std::shared_ptr<Section::Impl>> sections;
  std::map<std::string, bool> names;  // asked for; true: an array of tables
};

std::string print_toml(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr const char* digits = "0123456789ABCDEF";
      out += "\\u00";
      out += digits[static_cast<unsigned char>(c) >> 4];
      out += digits[c & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string print_toml(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[40];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string Section::where() const {
  return place(impl_->source, impl_->table) + (impl_->listed ? " [[" : " [") + impl_->name +
         (impl_->listed ? "]]" : "]");
}

void Section::refuse(const std::string& key, const std::string& requirement, const std::string& received,
                     const std::string& remedy) const {
  const toml::node* node = impl_->find(key);
  const std::string brackets = impl_->listed ? "[[" + impl_->name + "]]" : "[" + impl_->name + "]";
  throw UserError(place(impl_->source, node != nullptr ? node : impl_->table) + " " + brackets,
                  "'" + key + "' " + requirement, received, remedy);
}

namespace {

// Reads one key: the override, the file's value or the fallback.
template <class T, class Convert> T read(const Section& section, Section::Impl& impl, const std::string& key,
                                         const std::string& doc, const std::optional<T>& fallback,
                                         const std::string& kind, Convert&& convert) {
  const toml::node* node = impl.find(key);
  if (node == nullptr) {
    if (!fallback) section.refuse(key, "must be given: " + doc, "no value");
    return *fallback;
  }
  if (std::optional<T> value = convert(*node)) return *value;
  section.refuse(key, "must be " + kind + ": " + doc, show(*node));
}

std::optional<double> as_number(const toml::node& node) {
  return node.is_number() ? node.value<double>() : std::optional<double>();
}

template <class T, class Convert> std::optional<std::vector<T>> as_list(const toml::node& node, Convert&& convert) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return {};
  std::vector<T> out;
  for (const toml::node& item : *array) {
    const std::optional<T> value = convert(item);
    if (!value) return {};
    out.push_back(*value);
  }
  return out;
}

std::optional<std::string> as_text(const toml::node& node) {
  return node.is_string() ? node.value<std::string>() : std::optional<std::string>();
}

}  // namespace

std::string Section::text(const std::string& key, const std::string& doc, std::optional<std::string> fallback,
                          const std::vector<std::string>& choices) {
  std::string value = read(*this, *impl_, key, doc, fallback, "a text", as_text);
  if (impl_->overrides.contains(key)) value = std::get<std::string>(impl_->overrides[key]);
  if (!choices.empty() && std::ranges::find(choices, value) == choices.end())
    refuse(key, "must be one of its choices: " + doc, print_toml(value), nearest_hint(value, choices));
  impl_->record(key, print_toml(value), doc);
  return value;
}

std::int64_t Section::integer(const std::string& key, const std::string& doc, std::optional<std::int64_t> fallback,
                              std::int64_t least) {
  std::int64_t value = read(*this, *impl_, key, doc, fallback, "an integer", [](const toml::node& n) {
    return n.is_integer() ? n.value<std::int64_t>() : std::optional<std::int64_t>();
  });
  if (impl_->overrides.contains(key)) value = std::get<std::int64_t>(impl_->overrides[key]);
  if (value < least) refuse(key, "must be at least " + std::to_string(least) + ": " + doc, std::to_string(value));
  impl_->record(key, std::to_string(value), doc);
  return value;
}

double Section::number(const std::string& key, const std::string& doc, std::optional<double> fallback) {
  const double value = read(*this, *impl_, key, doc, fallback, "a number", as_number);
  impl_->record(key, print_toml(value), doc);
  return value;
}

bool Section::flag(const std::string& key, const std::string& doc, std::optional<bool> fallback) {
  const bool value = read(*this, *impl_, key, doc, fallback, "true or false",
                          [](const toml::node& n) { return n.is_boolean() ? n.value<bool>() : std::optional<bool>(); });
  impl_->record(key, value ? "true" : "false", doc);
  return value;
}

std::vector<std::string> Section::texts(const std::string& key, const std::string& doc,
                                        std::optional<std::vector<std::string>> fallback) {
  const auto value = read(*this, *impl_, key, doc, fallback, "a list of texts",
                          [](const toml::node& n) { return as_list<std::string>(n, as_text); });
  impl_->record(key, print_list(value), doc);
  return value;
}

std::vector<double> Section::numbers(const std::string& key, const std::string& doc,
                                     std::optional<std::vector<double>> fallback) {
  const auto value = read(*this, *impl_, key, doc, fallback, "a list of numbers",
                          [](const toml::node& n) { return as_list<double>(n, as_number); });
  impl_->record(key, print_list(value), doc);
  return value;
}

std::map<std::string, Setting> Section::settings(const std::vector<Parameter>& parameters) {
  std::map<std::string, Setting> given;
  std::set<std::string> known;
  for (const Entry& entry : impl_->entries) known.insert(entry.key);
  if (impl_->table != nullptr) {
    for (auto&& [name, node] : *impl_->table) {
      const std::string key(name.str());
      if (known.contains(key)) continue;
      if (node.is_boolean())
        given[key] = *node.value<bool>();
      else if (node.is_integer())
        given[key] = *node.value<std::int64_t>();
      else if (node.is_floating_point())
        given[key] = *node.value<double>();
      else if (node.is_string())
        given[key] = *node.value<std::string>();
      else
        refuse(key, "must be a flag, a number or a text", show(node));
    }
  }
  const Config checked(where(), parameters, given);
  for (const Parameter& p : parameters) {
    const Setting value = std::visit(
        [&]<class T>(const T&) -> Setting {
          if constexpr (std::is_same_v<T, bool>)
            return checked.flag(p.name);
          else if constexpr (std::is_same_v<T, std::int64_t>)
            return checked.integer(p.name);
          else if constexpr (std::is_same_v<T, double>)
            return checked.number(p.name);
          else
            return checked.text(p.name);
        },
        p.fallback);
    given[p.name] = value;
    impl_->record(p.name, print_setting(value), p.doc);
  }
  return given;
}

void Section::override_with(const std::string& key, const Setting& value) {
  impl_->overrides[key] = value;
  for (Entry& entry : impl_->entries)
    if (entry.key == key) entry.value = print_setting(value);
}

ConfigFile ConfigFile::read(const std::filesystem::path& path) {
  return parse(io::read_file(path, "config"), path.string());
}

ConfigFile ConfigFile::parse(std::string_view text, const std::string& source) {
  auto impl = std::make_shared<Impl>();
  impl->source = source;
  try {
    impl->root = toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    throw UserError("config", source + ":" + std::to_string(e.source().begin.line) + " must be valid TOML",
                    std::string(e.description()));
  }
  return ConfigFile(std::move(impl));
}

namespace {

// The node at a dotted name below `root`; the tables on the way are made known to finish() by their full names.
toml::node* descend(toml::table& root, const std::string& name) {
  toml::table* table = &root;
  std::string_view rest = name;
  for (;;) {
    const std::size_t dot = rest.find('.');
    toml::node* node = table->get(rest.substr(0, dot));
    if (dot == rest.npos || node == nullptr) return node;
    table = node->as_table();
    if (table == nullptr) return nullptr;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace

Section ConfigFile::section(const std::string& name, const std::string& doc) {
  impl_->names[name] = false;
  auto section = std::make_shared<Section::Impl>();
  section->source = impl_->source;
  section->name = name;
  section->doc = doc;
  if (toml::node* node = descend(impl_->root, name)) {
    section->table = node->as_table();
    if (section->table == nullptr)
      throw UserError(place(impl_->source, node), "'" + name + "' must be a table, [" + name + "]", show(*node));
  }
  impl_->sections.push_back(section);
  return Section(section);
}

std::vector<Section> ConfigFile::sections(const std::string& name, const std::string& doc) {
  impl_->names[name] = true;
  std::vector<Section> out;
  toml::node* node = descend(impl_->root, name);
  if (node == nullptr) return out;
  toml::array* array = node->as_array();
  if (array == nullptr || !std::ranges::all_of(*array, [](const toml::node& n) { return n.is_table(); }))
    throw UserError(place(impl_->source, node), "'" + name + "' must be tables, [[" + name + "]]", show(*node));
  for (toml::node& item : *array) {
    auto section = std::make_shared<Section::Impl>();
    section->source = impl_->source;
    section->name = name;
    section->table = item.as_table();
    section->listed = true;
    section->doc = doc;
    impl_->sections.push_back(section);
    out.emplace_back(section);
  }
  return out;
}

void ConfigFile::finish() const {
  std::vector<std::string> tables;
  for (const auto& [name, listed] : impl_->names) tables.push_back(name);
  for (auto&& [key, node] : impl_->root) {
    const std::string name(key.str());
    if (impl_->names.contains(name)) continue;
    const bool table = node.is_table() || (node.is_array_of_tables());
    throw UserError(place(impl_->source, &node),
                    table ? "every table must be one that a configuration has" : "keys must be in a table",
                    table ? "[" + name + "]" : "'" + name + "'", nearest_hint(name, tables));
  }
  for (const auto& section : impl_->sections) {
    if (section->table == nullptr) continue;
    std::vector<std::string> known;
    for (const Entry& entry : section->entries) known.push_back(entry.key);
    for (const std::string& name : tables)  // tables inside this one
      if (name.starts_with(section->name + ".")) known.push_back(name.substr(section->name.size() + 1));
    for (auto&& [key, node] : *section->table) {
      const std::string name(key.str());
      if (std::ranges::find(known, name) != known.end()) continue;
      throw UserError(place(impl_->source, &node),
                      std::string("every key of ") + (section->listed ? "[[" : "[") + section->name +
                          (section->listed ? "]]" : "]") + " must be one it has",
                      "'" + name + "'", nearest_hint(name, known));
    }
  }
}

std::string ConfigFile::print() const {
  std::string out, previous;
  for (const auto& section : impl_->sections) {
    if (section->entries.empty()) continue;
    if (!out.empty()) out += "\n";
    const std::string full = (section->listed ? "[[" : "[") + section->name + (section->listed ? "]]" : "]");
    if (section->name != previous && !section->doc.empty()) out += "# " + section->doc + "\n";
    previous = section->name;
    out += full + "\n";
    std::size_t width = 0;
    for (const Entry& entry : section->entries)
      if (entry.key.size() + entry.value.size() < 44)
        width = std::max(width, entry.key.size() + entry.value.size() + 3);
    for (const Entry& entry : section->entries) {
      const std::string line = entry.key + " = " + entry.value;
      if (line.size() > width && !entry.doc.empty())
        out += "# " + entry.doc + "\n" + line;
      else
        out += line + (entry.doc.empty() ? "" : std::string(width - line.size() + 2, ' ') + "# " + entry.doc);
      out += "\n";
    }
  }
  return out;
}

}  // namespace hotloop::cli
