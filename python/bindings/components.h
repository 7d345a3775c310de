// What the bindings of layers, losses and optimisers share: definitions of a registry as Python sees them, and trees.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/config.h"
#include "hotloop/init.h"
#include "hotloop/tree.h"
#include "tracer.h"
#include "trees.h"

namespace hotloop::python {

// (name, summary, [(parameter, default, doc, required, choices)...])
template <class Def> nb::tuple definition(const Def& def) {
  nb::list parameters;
  for (const Parameter& p : def.parameters) {
    nb::list choices;
    for (const std::string& c : p.choices) choices.append(nb::str(c.c_str()));
    const nb::object fallback = std::visit(
        []<class T>(const T& v) -> nb::object {
          if constexpr (std::is_same_v<T, bool>)
            return nb::bool_(v);
          else if constexpr (std::is_same_v<T, std::int64_t>)
            return nb::int_(v);
          else if constexpr (std::is_same_v<T, double>)
            return nb::float_(v);
          else
            return nb::str(v.c_str());
        },
        p.fallback);
    parameters.append(nb::make_tuple(nb::str(p.name.c_str()), fallback, nb::str(p.doc.c_str()), p.required, choices));
  }
  return nb::make_tuple(nb::str(def.name.c_str()), nb::str(def.summary.c_str()), parameters);
}

template <class Defs> nb::list definitions(const Defs& defs) {
  nb::list all;
  for (const auto& def : defs) all.append(definition(def));
  return all;
}

// Keyword arguments as a component's checked settings.
template <class Def> Config config_of(const Def& def, nb::dict settings);

std::map<std::string, Setting> settings_of(nb::dict settings);
template <class Def> Config config_of(const Def& def, nb::dict settings) {
  return Config(def.name, def.parameters, settings_of(settings));
}

// What stands for an integer, of 64 bits; UserError that names it otherwise. Seeds have no sign.
std::int64_t integer_of(nb::handle value, const std::string& where, const std::string& name);
std::uint64_t seed_number(nb::handle value, const std::string& where);

// "torch" or "keras"; UserError for another name.
nn::Init init_of(nb::handle name);

// Python trees as Trees: any tree for values and arrays, nested dicts on the way back.
Tree<Array> array_tree(nb::handle tree, const std::string& what);
Tree<Value> value_tree(nb::handle tree, const std::string& what);
// The children "0", "1", ... of a tree whose names nobody sees.
Tree<Value> numbered(const std::vector<Value>& values);
// A model's input: one array, or a tree of several by the names that Python has for them. UserError for names that are not their own.
Tree<Array> inputs_of(nb::handle x);
nb::object to_dicts(const Tree<Array>& tree);
nb::object to_dicts(const Tree<Value>& tree);

}  // namespace hotloop::python
