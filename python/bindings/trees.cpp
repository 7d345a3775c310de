#include "trees.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "depth.h"
#include "fields.h"
#include "gil.h"
#include "hotloop/error.h"

namespace hotloop::python {
namespace {

using Kind = Token::Kind;

constexpr const char* in_a_tree = " in a tree";

// Whether a field of a dataclass is part of the structure, and no array: field(metadata={"static": True}).
bool is_static_field(PyObject* field) {
  static PyObject* const metadata = PyUnicode_InternFromString("metadata");
  static PyObject* const name = PyUnicode_InternFromString("static");
  const nb::object all = checked(PyObject_GetAttr(field, metadata));
  if (PyObject_Size(all.ptr()) <= 0) return false;
  const nb::object value = all.attr("get")(nb::handle(name));
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth == 1;
}

// Calls visit(key object, child, whether it is static) for each field of a dataclass.
// A child may live no longer than that, since a field may be computed: a property, a descriptor.
template <class Visit> void visit_dataclass(PyObject* object, PyObject* fields, Visit&& visit) {
  PyObject *key = nullptr, *field = nullptr;
  for (Py_ssize_t at = 0; next_field(fields, at, key, field);) {
    const nb::object child = checked(PyObject_GetAttr(object, key));
    visit(key, child.ptr(), is_static_field(field));
  }
}

nb::object build(const Tokens& tokens, std::size_t& at, const nb::object*& next) {
  const Depth depth(in_a_tree);
  const Token token = tokens[at++];
  switch (token.kind) {
    case Kind::Leaf: return *next++;
    case Kind::None: return nb::none();
    case Kind::Static: return nb::borrow(token.object);
    case Kind::Dict: {
      nb::dict result;
      for (std::int32_t i = 0; i < token.arity; ++i) {
        const nb::object key = nb::borrow(tokens[at++].object);
        result[key] = build(tokens, at, next);
      }
      return result;
    }
    case Kind::List: {
      nb::list result;
      for (std::int32_t i = 0; i < token.arity; ++i) result.append(build(tokens, at, next));
      return result;
    }
    case Kind::Tuple:
    case Kind::Named: {
      nb::object result = checked(PyTuple_New(token.arity));
      for (std::int32_t i = 0; i < token.arity; ++i)
        PyTuple_SET_ITEM(result.ptr(), i, build(tokens, at, next).release().ptr());
      if (token.kind == Kind::Tuple) return result;
      // Not through the type's own __new__, which may check or convert what traced values cannot give.
      return nb::handle(reinterpret_cast<PyObject*>(&PyTuple_Type)).attr("__new__")(nb::handle(token.object), result);
    }
    case Kind::Data: {
      // Nor through __init__.
      auto* type = reinterpret_cast<PyTypeObject*>(token.object);
      const nb::object object =
          nb::handle(reinterpret_cast<PyObject*>(&PyBaseObject_Type)).attr("__new__")(nb::handle(token.object));
      PyObject *key = nullptr, *field = nullptr;
      PyObject* fields = fields_of_dataclass(type);
      for (Py_ssize_t position = 0; next_field(fields, position, key, field);) {
        const nb::object child = build(tokens, at, next);
        if (PyObject_GenericSetAttr(object.ptr(), key, child.ptr()) < 0) throw nb::python_error();
      }
      return object;
    }
    case Kind::Key: break;
  }
  throw InternalError(__FILE__, __LINE__, "a key without a dict");
}

// Name of child `index` of the container at `token`; for a dict the key is at tokens[at].
std::string name_of_child(const Token& token, std::size_t index, const Tokens& tokens, std::size_t at) {
  switch (token.kind) {
    case Kind::Dict: return text(nb::handle(tokens[at].object));
    case Kind::Named: {
      PyObject* fields = fields_of_named(reinterpret_cast<PyTypeObject*>(token.object));
      return text(nb::handle(PyTuple_GET_ITEM(fields, static_cast<Py_ssize_t>(index))));
    }
    case Kind::Data: {
      PyObject *key = nullptr, *field = nullptr;
      Py_ssize_t position = 0;
      for (std::size_t i = 0; i <= index; ++i)
        next_field(fields_of_dataclass(reinterpret_cast<PyTypeObject*>(token.object)), position, key, field);
      return text(nb::handle(key));
    }
    default: return std::to_string(index);
  }
}

// The path of child `index` of the container at `token`, which lies at `path`.
std::string path_to_child(const std::string& path, const Token& token, std::size_t index, const Tokens& tokens,
                          std::size_t at) {
  const std::string name = name_of_child(token, index, tokens, at);
  if (token.kind == Kind::Named || token.kind == Kind::Data) return path + "." + name;
  const bool is_text = token.kind == Kind::Dict && PyUnicode_Check(tokens[at].object);
  return path + (is_text ? "['" + name + "']" : "[" + name + "]");
}

void paths(const Tokens& tokens, std::size_t& at, const std::string& prefix, std::vector<std::string>& out) {
  const Depth depth(in_a_tree);
  const Token token = tokens[at++];
  if (token.kind == Kind::Leaf) out.push_back(prefix);
  for (std::int32_t i = 0; i < token.arity; ++i) {
    const std::string path = path_to_child(prefix, token, static_cast<std::size_t>(i), tokens, at);
    if (token.kind == Kind::Dict) ++at;
    paths(tokens, at, path, out);
  }
}

// Walks `tree` along `tokens`.
void match(const Tokens& tokens, std::size_t& at, nb::handle tree, const std::string& path, const std::string& what,
           std::vector<nb::object>& leaves) {
  const Depth depth(in_a_tree);
  const Token token = tokens[at++];
  const auto differs = [&](const std::string& wanted) {
    return UserError(what, "the tree must have " + wanted + (path.empty() ? "" : " at " + path), kind_of(tree));
  };
  switch (token.kind) {
    case Kind::Leaf: {
      FlatTree found;
      found.add_tree(tree.ptr());
      if (found.tokens.size() != 1 || found.objects.size() != 1) throw differs("one array");
      leaves.push_back(nb::borrow(tree));
      return;
    }
    case Kind::None:
      if (!tree.is_none()) throw differs("None");
      return;
    case Kind::Dict: {
      if (!PyDict_Check(tree.ptr()) || PyDict_GET_SIZE(tree.ptr()) != token.arity)
        throw differs("a dict of " + std::to_string(token.arity));
      for (std::int32_t i = 0; i < token.arity; ++i) {
        const nb::handle key(tokens[at].object);
        PyObject* child = PyDict_GetItemWithError(tree.ptr(), key.ptr());
        if (child == nullptr) throw differs("the key " + text(key));
        const std::string inside = path_to_child(path, token, static_cast<std::size_t>(i), tokens, at++);
        match(tokens, at, child, inside, what, leaves);
      }
      return;
    }
    case Kind::List:
    case Kind::Tuple:
    case Kind::Named: {
      const bool fits = token.kind == Kind::List    ? PyList_Check(tree.ptr())
                        : token.kind == Kind::Tuple ? PyTuple_Check(tree.ptr())
                                                    : reinterpret_cast<PyObject*>(Py_TYPE(tree.ptr())) == token.object;
      if (!fits || PySequence_Size(tree.ptr()) != token.arity)
        throw differs(std::string("a ") + (token.kind == Kind::List ? "list" : "tuple") + " of " +
                      std::to_string(token.arity));
      for (std::int32_t i = 0; i < token.arity; ++i)
        match(tokens, at, nb::object(tree[i]), path_to_child(path, token, static_cast<std::size_t>(i), tokens, at),
              what, leaves);
      return;
    }
    case Kind::Data: {
      if (reinterpret_cast<PyObject*>(Py_TYPE(tree.ptr())) != token.object)
        throw differs("a " + text(nb::handle(token.object).attr("__name__")));
      visit_dataclass(tree.ptr(), fields_of_dataclass(Py_TYPE(tree.ptr())), [&](PyObject* key, PyObject* child, bool) {
        match(tokens, at, child, path + "." + text(nb::handle(key)), what, leaves);
      });
      return;
    }
    case Kind::Static:
      if (!same_static(token.object, tree.ptr()))
        throw differs("the static value " + text(nb::repr(nb::handle(token.object))));
      return;
    case Kind::Key: break;
  }
  throw InternalError(__FILE__, __LINE__, "a token that is no tree");
}

}  // namespace

Structure::Structure(const Tokens& tokens) : Structure(Content{tokens, {}}) {}

Structure::Structure(Content content) {
  for (const Token& t : content.tokens) {
    if (t.owns_object()) Py_INCREF(t.object);
    num_leaves_ += t.kind == Kind::Leaf;
  }
  content_ = std::shared_ptr<const Content>(new Content(std::move(content)), [](const Content* last) {
    const std::unique_ptr<Content> owned(const_cast<Content*>(last));
    if (python_lives()) {
      const GilAcquired gil;
      for (const Token& t : owned->tokens)
        if (t.owns_object()) Py_DECREF(t.object);
      owned->values.clear();
    } else {
      for (StaticValue& value : owned->values)
        for (nb::object& object : value.objects()) (void)object.release();
    }
  });
}

Structure Structure::with_frozen_values(Tokens tokens) {
  std::vector<StaticValue> values;
  for (Token& t : tokens) {
    if (t.kind != Kind::Static) continue;
    values.emplace_back(t.object);
    t.object = Py_None;
  }
  return Structure(Content{std::move(tokens), std::move(values)});
}

bool Structure::equals(const Tokens& other) const {
  const Tokens& mine = tokens();
  if (mine.size() != other.size()) return false;
  const StaticValue* frozen = content_->values.data();
  const bool has_frozen = !content_->values.empty();
  for (std::size_t i = 0; i < other.size(); ++i) {
    const Token &a = mine[i], &b = other[i];
    if (a.kind != b.kind || a.arity != b.arity) return false;
    if (a.kind == Kind::Static && has_frozen) {
      if (!(frozen++)->holds(b.object)) return false;
    } else if (a.object != b.object) {
      const bool is_type = a.kind != Kind::Key && a.kind != Kind::Static;
      if (is_type || !same_static(a.object, b.object)) return false;
    }
  }
  return true;
}

std::size_t hash_of(const Tokens& tokens) {
  std::size_t h = tokens.size();
  const auto mix = [&](std::size_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15u; };
  for (const Token& t : tokens) {
    mix(static_cast<std::size_t>(t.kind) + static_cast<std::size_t>(t.arity) * 16);
    if (t.kind == Kind::Key || t.kind == Kind::Static)
      mix(hash_static(t.object));
    else if (t.object != nullptr)
      mix(reinterpret_cast<std::size_t>(t.object) >> 4);
  }
  return h;
}

int Structure::traverse(visitproc visit, void* arg) const {
  if (content_.use_count() != 1) return 0;
  for (const Token& t : content_->tokens)
    if (t.owns_object()) Py_VISIT(t.object);
  for (const StaticValue& value : content_->values)
    for (const nb::object& object : value.objects()) Py_VISIT(object.ptr());
  return 0;
}

std::string Structure::str() const {
  std::vector<nb::object> stars(num_leaves_, nb::str("*"));
  return nb::cast<std::string>(nb::repr(unflatten(*this, stars)));
}

void FlatTree::clear() {
  for (const Token& t : tokens)
    if (t.owns_object()) Py_DECREF(t.object);
  tokens.clear();
  for (PyObject* leaf : objects) Py_DECREF(leaf);
  objects.clear();
}

void FlatTree::add_tree(PyObject* tree) {
  if (PyDict_Check(tree) || PyList_Check(tree) || PyTuple_Check(tree)) return add_container(tree, nullptr);
  if (tree == Py_None) return add(Kind::None);
  if (!PyType_Check(tree))
    if (PyObject* fields = fields_of_dataclass(Py_TYPE(tree)); fields != nullptr) return add_container(tree, fields);
  add(Kind::Leaf);
  objects.push_back(Py_NewRef(tree));
}

// `fields` are those of a dataclass.
void FlatTree::add_container(PyObject* tree, PyObject* fields) {
  // Children are counted as they come: reading one may run Python, which may change the container, or let go of it.
  const Depth depth(in_a_tree);
  const nb::object owner = nb::borrow(tree);
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(tree));
  const std::size_t at = tokens.size();
  std::int32_t arity = 0;
  if (PyDict_Check(tree)) {
    add(Kind::Dict);
    PyObject *key = nullptr, *child = nullptr;
    for (Py_ssize_t place = 0; PyDict_Next(tree, &place, &key, &child) != 0; ++arity) {
      add(Kind::Key, 0, key);
      add_tree(child);
    }
  } else if (PyList_Check(tree)) {
    add(Kind::List);
    for (; arity < PyList_GET_SIZE(tree); ++arity) add_tree(PyList_GET_ITEM(tree, arity));
  } else if (PyTuple_Check(tree)) {
    if (!PyTuple_CheckExact(tree) && fields_of_named(Py_TYPE(tree)) != nullptr)
      add(Kind::Named, 0, type);
    else
      add(Kind::Tuple);
    for (; arity < PyTuple_GET_SIZE(tree); ++arity) add_tree(PyTuple_GET_ITEM(tree, arity));
  } else {
    add(Kind::Data, 0, type);
    visit_dataclass(tree, fields, [&](PyObject*, PyObject* child, bool is_static) {
      ++arity;
      if (is_static)
        add(Kind::Static, 0, child);
      else
        add_tree(child);
    });
  }
  tokens[at].arity = arity;
}

std::pair<std::vector<nb::object>, Structure> flatten(nb::handle tree) {
  FlatTree flat;
  flat.add_tree(tree.ptr());
  std::vector<nb::object> leaves;
  for (PyObject* leaf : flat.objects) leaves.push_back(nb::borrow(leaf));
  return {std::move(leaves), Structure(flat.tokens)};
}

std::vector<nb::object> flatten_like(const Structure& structure, nb::handle tree, const std::string& what) {
  std::vector<nb::object> leaves;
  std::size_t at = 0;
  match(structure.tokens(), at, tree, "", what, leaves);
  return leaves;
}

nb::object unflatten(const Structure& structure, const std::vector<nb::object>& leaves) {
  if (leaves.size() != structure.num_leaves())
    throw UserError("tree", "there must be " + std::to_string(structure.num_leaves()) + " leaves",
                    std::to_string(leaves.size()));
  std::size_t at = 0;
  const nb::object* next = leaves.data();
  return build(structure.tokens(), at, next);
}

std::vector<std::string> leaf_paths(const Structure& structure) {
  std::vector<std::string> out;
  std::size_t at = 0;
  paths(structure.tokens(), at, "", out);
  return out;
}

std::string detail::child_name(const Token& container, std::size_t index, const NameWalk& walk) {
  return name_of_child(container, index, walk.tokens, walk.at);
}

void detail::equal_names(const std::string& where, const std::string& name) {
  throw UserError(where, "the keys of a dict must differ as text", "two keys '" + name + "'", "strings alone as keys");
}

void bind_trees(nb::module_& m) {
  nb::class_<Structure>(m, "Structure", "The structure of a tree, without its leaves.")
      .def_prop_ro("num_leaves", &Structure::num_leaves)
      .def("unflatten", [](const Structure& s, const std::vector<nb::object>& leaves) { return unflatten(s, leaves); })
      .def(
          "flatten_like",
          [](const Structure& s, nb::handle tree, const std::string& what) { return flatten_like(s, tree, what); },
          nb::arg("tree").none(), nb::arg("what") = "tree")
      .def("paths", &leaf_paths)
      .def(
          "__eq__",
          [](const Structure& a, nb::handle b) {
            return nb::isinstance<Structure>(b) && a.equals(nb::cast<const Structure&>(b).tokens());
          },
          nb::arg("other").none())
      .def("__hash__", [](const Structure& s) { return hash_of(s.tokens()); })
      .def("__repr__", [](const Structure& s) { return "Structure(" + s.str() + ")"; });
  m.def(
      "tree_flatten", [](nb::handle tree) { return flatten(tree); }, nb::arg("tree").none());
}

}  // namespace hotloop::python
