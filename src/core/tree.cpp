#include "hotloop/tree.h"

#include "core/nearest.h"

namespace hotloop::detail {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text.empty() ? "none" : text;
}

}  // namespace

void no_such_child(const std::string& name, const std::vector<std::string>& names) {
  if (names.size() == 1 && names[0].empty())
    throw UserError("tree", "a name must be in the tree", "'" + name + "' of a leaf", "leaf(), which is its value");
  throw UserError("tree", "a name must be in the tree", "'" + name + "'" + (names.empty() ? " of an empty tree" : ""),
                  names.empty() ? "a tree that is not empty" : nearest_hint(name, names));
}

void repeated_child(const std::string& name) {
  throw UserError("tree", "children must have different names", "'" + name + "' twice");
}

void wrong_tree_kind(bool wanted_leaf) {
  if (wanted_leaf) throw UserError("tree", "only a leaf has a value", "a branch", "name one of its leaves");
  throw UserError("tree", "only a branch has children", "a leaf");
}

void wrong_leaf_count(std::size_t wanted, std::size_t received) {
  throw UserError("tree", "unflatten takes one value a leaf, " + std::to_string(wanted), std::to_string(received));
}

void different_structure(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  throw UserError("tree", "trees must have the same leaves in the same order", join(a) + " and " + join(b));
}

}  // namespace hotloop::detail
