// Structures: what a function may take and give besides single values, see functions.h. A structure is a leaf, a Tree of leaves, or a
// std::vector, std::array, std::pair or std::tuple of structures. So is a struct of one's own that is a template over its leaf and
// lists its members:
//
//   template <class T> struct Player {
//     Tree<T> params, state;
//     T loss;
//     auto members() { return std::tie(params, state, loss); }
//   };
//
// Player<Value> is the structure inside a trace, Player<Array> the same outside. Leaves are numbered depth first, in order of members,
// elements and children.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/tree.h"

namespace hotloop {

namespace detail {

template <class T>
concept StructureLeaf = std::same_as<T, Value> || std::same_as<T, Array> || std::same_as<T, ValueType>;

// What is known of a kind of structure S:
//   With<U>          the structure with leaves of another type
//   map(s, f)        the structure of f(leaf), in order
//   visit(s, f)      f(leaf), in order
//   fits(s, other, f)  whether `other`, a With<U>, has the same children everywhere and f(leaf, other leaf) holds for each
template <class S> struct Structure;

template <class S>
concept IsStructure = requires {
  typename Structure<S>::Leaf;
};

template <class S, class U> using With = typename Structure<S>::template With<U>;
template <class F, class T> using MappedLeaf = std::decay_t<std::invoke_result_t<F&, const T&>>;

template <StructureLeaf T> struct Structure<T> {
  using Leaf = T;
  template <class U> using With = U;
  template <class F> static auto map(const T& leaf, F& f) { return f(leaf); }
  template <class F> static void visit(const T& leaf, F& f) { f(leaf); }
  template <class U, class F> static bool fits(const T& leaf, const U& other, F& f) { return f(leaf, other); }
};

template <StructureLeaf T> struct Structure<Tree<T>> {
  using Leaf = T;
  template <class U> using With = Tree<U>;
  template <class F> static auto map(const Tree<T>& tree, F& f) { return tree.map(f); }
  template <class F> static void visit(const Tree<T>& tree, F& f) {
    if (tree.is_leaf()) f(tree.leaf());
    for (const auto& child : tree.children()) visit(child.second, f);
  }
  template <class U, class F> static bool fits(const Tree<T>& tree, const Tree<U>& other, F& f) {
    if (tree.is_leaf() != other.is_leaf() || tree.children().size() != other.children().size()) return false;
    if (tree.is_leaf()) return f(tree.leaf(), other.leaf());
    for (std::size_t i = 0; i < tree.children().size(); ++i) {
      const auto& [name, child] = tree.children()[i];
      const auto& [other_name, other_child] = other.children()[i];
      if (name != other_name || !fits(child, other_child, f)) return false;
    }
    return true;
  }
};

template <IsStructure S> struct Structure<std::vector<S>> {
  using Leaf = typename Structure<S>::Leaf;
  template <class U> using With = std::vector<detail::With<S, U>>;
  template <class F> static auto map(const std::vector<S>& all, F& f) {
    With<MappedLeaf<F, Leaf>> result;
    result.reserve(all.size());
    for (const S& s : all) result.push_back(Structure<S>::map(s, f));
    return result;
  }
  template <class F> static void visit(const std::vector<S>& all, F& f) {
    for (const S& s : all) Structure<S>::visit(s, f);
  }
  template <class U, class F> static bool fits(const std::vector<S>& all, const std::vector<U>& others, F& f) {
    if (all.size() != others.size()) return false;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!Structure<S>::fits(all[i], others[i], f)) return false;
    return true;
  }
};

template <IsStructure S, std::size_t n> struct Structure<std::array<S, n>> {
  using Leaf = typename Structure<S>::Leaf;
  template <class U> using With = std::array<detail::With<S, U>, n>;
  template <class F> static auto map(const std::array<S, n>& all, F& f) {
    With<MappedLeaf<F, Leaf>> result;
    for (std::size_t i = 0; i < n; ++i) result[i] = Structure<S>::map(all[i], f);
    return result;
  }
  template <class F> static void visit(const std::array<S, n>& all, F& f) {
    for (const S& s : all) Structure<S>::visit(s, f);
  }
  template <class U, class F> static bool fits(const std::array<S, n>& all, const std::array<U, n>& others, F& f) {
    for (std::size_t i = 0; i < n; ++i)
      if (!Structure<S>::fits(all[i], others[i], f)) return false;
    return true;
  }
};

// The leaf type of the first of several structures; Value where there are none.
template <class... S> struct LeafOf { using type = Value; };
template <class First, class... Rest> struct LeafOf<First, Rest...> { using type = typename Structure<First>::Leaf; };

template <IsStructure... S> struct Structure<std::tuple<S...>> {
  using Leaf = typename LeafOf<S...>::type;
  template <class U> using With = std::tuple<detail::With<S, U>...>;
  template <class F> static auto map(const std::tuple<S...>& all, F& f) {
    // Braces, so that members are mapped from the first to the last.
    return std::apply([&](const S&... s) { return With<MappedLeaf<F, Leaf>>{Structure<S>::map(s, f)...}; }, all);
  }
  template <class F> static void visit(const std::tuple<S...>& all, [[maybe_unused]] F& f) {
    std::apply([&](const S&... s) { (Structure<S>::visit(s, f), ...); }, all);
  }
  template <class... U, class F> static bool fits(const std::tuple<S...>& all, const std::tuple<U...>& others, F& f) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return (Structure<S>::fits(std::get<i>(all), std::get<i>(others), f) && ...);
    }
    (std::index_sequence_for<S...>());
  }
};

template <IsStructure A, IsStructure B> struct Structure<std::pair<A, B>> {
  using Leaf = typename Structure<A>::Leaf;
  template <class U> using With = std::pair<detail::With<A, U>, detail::With<B, U>>;
  template <class F> static auto map(const std::pair<A, B>& both, F& f) {
    return With<MappedLeaf<F, Leaf>>{Structure<A>::map(both.first, f), Structure<B>::map(both.second, f)};
  }
  template <class F> static void visit(const std::pair<A, B>& both, F& f) {
    Structure<A>::visit(both.first, f);
    Structure<B>::visit(both.second, f);
  }
  template <class U, class V, class F>
  static bool fits(const std::pair<A, B>& both, const std::pair<U, V>& others, F& f) {
    return Structure<A>::fits(both.first, others.first, f) && Structure<B>::fits(both.second, others.second, f);
  }
};

// A struct of the user's: what its members() are.
template <class... M> std::tuple<M...> copied(const std::tuple<M&...>& members) { return members; }
template <template <class> class S, StructureLeaf T>
requires requires(S<T> s) { s.members(); }
struct Structure<S<T>> {
  using Leaf = T;
  template <class U> using With = S<U>;
  template <class U> static auto members_of(S<U> s) { return copied(s.members()); }
  template <class F> static auto map(const S<T>& s, F& f) {
    using Members = decltype(members_of(s));
    auto mapped = Structure<Members>::map(members_of(s), f);
    S<MappedLeaf<F, T>> result;
    result.members() = std::move(mapped);
    return result;
  }
  template <class F> static void visit(const S<T>& s, F& f) {
    using Members = decltype(members_of(s));
    Structure<Members>::visit(members_of(s), f);
  }
  template <class U, class F> static bool fits(const S<T>& s, const S<U>& other, F& f) {
    using Members = decltype(members_of(s));
    return Structure<Members>::fits(members_of(s), members_of(other), f);
  }
};

}  // namespace detail

// A structure of values, what functions under trace take and give.
template <class S>
concept ValueStructure = detail::IsStructure<S> && std::same_as<typename detail::Structure<S>::Leaf, Value>;
// The same structure outside a trace.
template <ValueStructure S> using ArraysOf = detail::With<S, Array>;

// The structure of f(leaf) over all leaves, in order.
template <class S, class F> auto map_leaves(const S& structure, F&& f) {
  return detail::Structure<S>::map(structure, f);
}
// Its leaves, in order; of several structures, those of the first come first.
template <class S, class... More> auto leaves_of(const S& structure, const More&... more) {
  std::vector<typename detail::Structure<S>::Leaf> leaves;
  auto take = [&](const typename detail::Structure<S>::Leaf& leaf) { leaves.push_back(leaf); };
  detail::Structure<S>::visit(structure, take);
  (detail::Structure<More>::visit(more, take), ...);
  return leaves;
}
template <class S> std::size_t num_leaves(const S& structure) {
  std::size_t count = 0;
  auto add = [&](const auto&) { ++count; };
  detail::Structure<S>::visit(structure, add);
  return count;
}
// This structure with other leaves, in the order of leaves_of(); UserError unless their number is num_leaves().
template <class S, class U> detail::With<S, U> with_leaves(const S& structure, std::span<const U> leaves) {
  if (const std::size_t wanted = num_leaves(structure); leaves.size() != wanted)
    detail::wrong_leaf_count(wanted, leaves.size());
  std::size_t next = 0;
  return map_leaves(structure, [&](const auto&) { return leaves[next++]; });
}
template <class S, class U> detail::With<S, U> with_leaves(const S& structure, const std::vector<U>& leaves) {
  return with_leaves(structure, std::span(leaves));
}

}  // namespace hotloop
