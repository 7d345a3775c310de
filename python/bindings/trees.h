// Argument trees: dicts, lists, tuples, named tuples, dataclasses and None with leaves between them. A field of a dataclass
// with metadata={"static": True} is part of the structure.
//
// A structure is a flat list of tokens in preorder. Structures that calls bring are compared with the one that was compiled, so
// making and comparing them allocates next to nothing.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "hotloop/tree.h"
#include "static_values.h"

namespace hotloop::python {

struct Token {
  enum class Kind : std::uint8_t {
    Leaf,
    None,
    Dict,
    List,
    Tuple,
    Key,
    Named,
    Data,
    Static
  };  // from Key on with an object
  Kind kind;
  std::int32_t arity = 0;      // children of a container
  PyObject* object = nullptr;  // key, type or static value; owned by whoever owns the list

  bool owns_object() const { return kind >= Kind::Key; }
};
using Tokens = std::vector<Token>;

// The structure of a tree, owning its keys and types. Copies share it.
class Structure {
 public:
  Structure() = default;
  explicit Structure(const Tokens& tokens);  // takes references of its own
  const Tokens& tokens() const { return content_->tokens; }
  std::size_t num_leaves() const { return num_leaves_; }
  // Keys and static values are compared by what they hold, see StaticValue.
  bool equals(const Tokens& other) const;
  // To compare with: in place of its static values there is what they hold now.
  static Structure with_frozen_values(Tokens tokens);
  std::string str() const;
  // One that owns its objects beside this one.
  Structure clone() const { return Structure(Content(*content_)); }
  // For the garbage collector, the objects that this structure owns, if it has no copies.
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Content {
    Tokens tokens;
    std::vector<StaticValue> values;  // of its static tokens in order, if it has frozen ones
  };
  explicit Structure(Content content);

  std::shared_ptr<const Content> content_;
  std::size_t num_leaves_ = 0;
};

// Of structures that are equal the same.
std::size_t hash_of(const Tokens& tokens);

// Trees taken apart. It owns its leaves and the objects of its tokens until clear(): a field of a dataclass may be computed when it is read, and reading it,
// or a leaf, may run Python that takes them out of the tree.
struct FlatTree {
  Tokens tokens;
  std::vector<PyObject*> objects;  // the leaves

  FlatTree() = default;
  ~FlatTree() { clear(); }
  FlatTree(const FlatTree&) = delete;
  FlatTree& operator=(const FlatTree&) = delete;
  void clear();
  // Appends a token, which takes a reference of its own.
  void add(Token::Kind kind, std::size_t arity = 0, PyObject* object = nullptr) {
    const Token token{kind, static_cast<std::int32_t>(arity), object};
    tokens.push_back(token);
    if (token.owns_object()) Py_INCREF(object);
  }
  // Appends the structure of `tree`, and its leaves.
  void add_tree(PyObject* tree);

 private:
  void add_container(PyObject* tree, PyObject* fields);
};
std::pair<std::vector<nb::object>, Structure> flatten(nb::handle tree);
// The leaves of `tree` in the order of `structure`: dicts are matched by key. UserError naming the first difference.
std::vector<nb::object> flatten_like(const Structure& structure, nb::handle tree, const std::string& what);
// The tree again, with one of `leaves` for each leaf.
nb::object unflatten(const Structure& structure, const std::vector<nb::object>& leaves);
// "['a'][0].x" for each leaf.
std::vector<std::string> leaf_paths(const Structure& structure);

// A hotloop::Tree with the same names: keys, positions and field names become children. UserError of `where` for keys that are the same text, as 1 and "1".
template <class T>
Tree<T> named_tree(const std::string& where, const Structure& structure, const std::vector<T>& leaves);
// A Tree as nested dicts of Python objects.
template <class T, class F> nb::object to_dicts(const Tree<T>& tree, F&& convert) {
  if (tree.is_leaf()) return convert(tree.leaf());
  nb::dict result;
  for (const auto& [name, child] : tree.children())
    result[nb::str(name.c_str(), name.size())] = to_dicts(child, convert);
  return result;
}

namespace detail {
struct NameWalk {
  const std::string& where;
  const Tokens& tokens;
  std::size_t at = 0, leaf = 0;
};
std::string child_name(const Token& container, std::size_t index, const NameWalk& walk);
[[noreturn]] void equal_names(const std::string& where, const std::string& name);
template <class T> Tree<T> named(NameWalk& walk, const std::vector<T>& leaves) {
  const Token token = walk.tokens[walk.at++];
  if (token.kind == Token::Kind::Leaf) return Tree<T>(leaves[walk.leaf++]);
  Tree<T> result;
  for (std::int32_t i = 0; i < token.arity; ++i) {
    const std::string name = child_name(token, static_cast<std::size_t>(i), walk);
    if (token.kind == Token::Kind::Dict) {
      if (std::ranges::any_of(result.children(), [&](const auto& child) { return child.first == name; }))
        equal_names(walk.where, name);
      ++walk.at;  // the key
    }
    result.set(name, named(walk, leaves));
  }
  return result;
}
}  // namespace detail

template <class T>
Tree<T> named_tree(const std::string& where, const Structure& structure, const std::vector<T>& leaves) {
  detail::NameWalk walk{where, structure.tokens()};
  return detail::named(walk, leaves);
}

}  // namespace hotloop::python
