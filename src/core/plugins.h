// The table that a plug-in folder's files make together.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/nearest.h"
#include "hotloop/error.h"

namespace hotloop {

// Definitions of all files, sorted by name; Def has a member `name`.
template <class Def> std::vector<Def> gather_plugins(const std::vector<std::vector<Def> (*)()>& files) {
  std::vector<Def> all;
  for (auto file : files)
    for (Def& def : file()) all.push_back(std::move(def));
  std::ranges::sort(all, {}, &Def::name);
  for (std::size_t i = 1; i < all.size(); ++i)
    HOTLOOP_CHECK(all[i - 1].name != all[i].name, "'" + all[i].name + "' is defined twice");
  return all;
}

// The definition of that name; UserError with the nearest name if there is none. `kind` is "layer", "loss", ...
template <class Def>
const Def& find_plugin(std::span<const Def> table, std::string_view name, const std::string& kind) {
  const auto it = std::ranges::find(table, name, &Def::name);
  if (it != table.end()) return *it;
  std::vector<std::string> names;
  for (const Def& def : table) names.push_back(def.name);
  throw UserError(kind, "the " + kind + " must be one that exists", "'" + std::string(name) + "'",
                  nearest_hint(name, names));
}

}  // namespace hotloop
