// Tree: named leaves in a fixed order, for parameters, optimiser states and recurrent states.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "hotloop/error.h"

namespace hotloop {

namespace detail {
[[noreturn]] void no_such_child(const std::string& name, const std::vector<std::string>& names);
[[noreturn]] void repeated_child(const std::string& name);
[[noreturn]] void wrong_tree_kind(bool wanted_leaf);
[[noreturn]] void wrong_leaf_count(std::size_t wanted, std::size_t received);
[[noreturn]] void different_structure(const std::vector<std::string>& a, const std::vector<std::string>& b);
}  // namespace detail

// A leaf holding one T (Array outside a trace, Value inside one), or a branch: children with names, in the order in which they
// were added. Two trees have the same structure when the names and their order agree.
//
// The full name of a leaf joins the names on its way with dots, as PyTorch's state_dict does: "0.weight_ih_l0".
template <class T> class Tree {
 public:
  using Child = std::pair<std::string, Tree>;

  Tree() = default;  // a branch without children
  Tree(T leaf) : leaf_(std::move(leaf)), is_leaf_(true) {}
  // UserError for a name that is there twice.
  Tree(std::initializer_list<Child> children) : children_(children) {
    for (std::size_t i = 1; i < children_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (children_[i].first == children_[j].first) detail::repeated_child(children_[i].first);
  }

  bool is_leaf() const { return is_leaf_; }
  bool empty() const { return !is_leaf_ && children_.empty(); }
  // The value of a leaf; UserError for a branch.
  const T& leaf() const {
    if (!is_leaf_) detail::wrong_tree_kind(true);
    return leaf_;
  }
  T& leaf() { return const_cast<T&>(std::as_const(*this).leaf()); }
  const std::vector<Child>& children() const { return children_; }

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // The child or, for a dotted name, the descendant; UserError with the nearest name if there is none.
  const Tree& at(std::string_view name) const {
    if (const Tree* found = find(name)) return *found;
    detail::no_such_child(std::string(name), names());
  }
  Tree& at(std::string_view name) { return const_cast<Tree&>(std::as_const(*this).at(name)); }
  // The leaf of that name.
  const T& operator[](std::string_view name) const { return at(name).leaf(); }
  T& operator[](std::string_view name) { return at(name).leaf(); }
  // Adds a child at the end, or replaces the one of that name. The name is one level: dots are not split.
  void set(std::string_view name, Tree child) {
    if (is_leaf_) detail::wrong_tree_kind(false);
    for (Child& c : children_)
      if (c.first == name) {
        c.second = std::move(child);
        return;
      }
    children_.emplace_back(std::string(name), std::move(child));
  }

  // Leaves depth first, and their full names in the same order.
  std::vector<T> flatten() const {
    std::vector<T> leaves;
    visit("", [&](const std::string&, const T& leaf) { leaves.push_back(leaf); });
    return leaves;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    visit("", [&](const std::string& name, const T&) { all.push_back(name); });
    return all;
  }
  std::size_t num_leaves() const {
    std::size_t count = is_leaf_ ? 1 : 0;
    for (const Child& c : children_) count += c.second.num_leaves();
    return count;
  }

  // This structure with other leaves, in flatten() order; UserError unless their number is num_leaves().
  template <class U> Tree<U> unflatten(std::span<const U> leaves) const {
    if (leaves.size() != num_leaves()) detail::wrong_leaf_count(num_leaves(), leaves.size());
    std::size_t next = 0;
    return map([&](const T&) { return leaves[next++]; });
  }
  template <class U> Tree<U> unflatten(const std::vector<U>& leaves) const { return unflatten(std::span(leaves)); }

  // The tree of f(leaf).
  template <class F> auto map(F&& f) const -> Tree<std::decay_t<decltype(f(std::declval<const T&>()))>> {
    using U = std::decay_t<decltype(f(std::declval<const T&>()))>;
    if (is_leaf_) return Tree<U>(f(leaf_));
    Tree<U> result;
    result.children_.reserve(children_.size());
    for (const Child& c : children_) result.children_.emplace_back(c.first, c.second.map(f));
    return result;
  }
  // f(full name, leaf) on every leaf, in order.
  template <class F> void for_each(F&& f) const { visit("", f); }

  // The tree whose leaves have these full names: "a.b" becomes child b of child a.
  static Tree from_names(const std::vector<std::pair<std::string, T>>& leaves) {
    Tree result;
    for (const auto& [name, leaf] : leaves) {
      Tree* at = &result;
      std::string_view rest = name;
      for (std::size_t dot; (dot = rest.find('.')) != rest.npos; rest.remove_prefix(dot + 1)) {
        const std::string_view head = rest.substr(0, dot);
        if (at->child(head) == nullptr) at->set(head, Tree());
        at = at->child(head);
      }
      at->set(rest, Tree(leaf));
    }
    return result;
  }

 private:
  template <class U> friend class Tree;

  template <class F> void visit(const std::string& prefix, F&& f) const {
    if (is_leaf_) f(prefix, leaf_);
    for (const Child& c : children_) c.second.visit(prefix.empty() ? c.first : prefix + "." + c.first, f);
  }
  Tree* child(std::string_view name) {
    for (Child& c : children_)
      if (c.first == name) return &c.second;
    return nullptr;
  }
  const Tree* find(std::string_view name) const {
    for (const Child& c : children_) {
      if (c.first == name) return &c.second;
      if (name.size() > c.first.size() && name.starts_with(c.first) && name[c.first.size()] == '.')
        if (const Tree* found = c.second.find(name.substr(c.first.size() + 1))) return found;
    }
    return nullptr;
  }

  T leaf_{};
  std::vector<Child> children_;
  bool is_leaf_ = false;
};

// The tree of f(a, b, ...) over leaves of trees of one structure; UserError naming the difference otherwise.
template <class F, class T, class... U> auto map_trees(F&& f, const Tree<T>& first, const Tree<U>&... rest) {
  const auto check = [&](const auto& other) {
    if (first.names() != other.names()) detail::different_structure(first.names(), other.names());
  };
  (check(rest), ...);
  std::size_t next = 0;
  const auto others = std::make_tuple(rest.flatten()...);
  return first.map([&](const T& leaf) {
    const std::size_t i = next++;
    return std::apply([&](const auto&... leaves) { return f(leaf, leaves[i]...); }, others);
  });
}

}  // namespace hotloop
