#include "trees.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "depth.h"
#include "gil.h"
#include "hotloop/error.h"
#include "static_values.h"

namespace hotloop::python {
namespace {

using Kind = Token::Kind;

constexpr const char* in_a_tree = " in a tree";

bool owns_object(Kind kind) {
  return kind == Kind::Key || kind == Kind::Named || kind == Kind::Data || kind == Kind::Static;
}

PyObject* fields_of_named(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("_fields");
  PyObject* fields = class_attribute(type, name);  // borrowed
  return fields != nullptr && PyTuple_Check(fields) ? fields : nullptr;
}

// The dict of fields that @dataclass left in the class, in order, see next_field(); borrowed.
PyObject* fields_of_dataclass(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__dataclass_fields__");
  PyObject* fields = class_attribute(type, name);
  return fields != nullptr && PyDict_Check(fields) ? fields : nullptr;
}

// Whether an instance has it: ClassVar and InitVar leave entries among the fields, too, which dataclasses.fields() passes over like this.
bool is_field(PyObject* entry) {
  static PyObject* const name = PyUnicode_InternFromString("_field_type");
  static PyObject* const wanted = nb::object(nb::module_::import_("dataclasses").attr("_FIELD")).release().ptr();
  const nb::object type = nb::steal(PyObject_GetAttr(entry, name));
  if (!type.is_valid()) throw nb::python_error();
  return type.ptr() == wanted;
}

// The next field, from `at` on (0 is the first). False after the last one.
bool next_field(PyObject* fields, Py_ssize_t& at, PyObject*& key, PyObject*& field) {
  while (PyDict_Next(fields, &at, &key, &field) != 0)
    if (is_field(field)) return true;
  return false;
}

// Whether a field of a dataclass is part of the structure, and no array: field(metadata={"static": True}).
bool is_static_field(PyObject* field) {
  static PyObject* const metadata = PyUnicode_InternFromString("metadata");
  static PyObject* const name = PyUnicode_InternFromString("static");
  const nb::object all = nb::steal(PyObject_GetAttr(field, metadata));
  if (!all.is_valid()) throw nb::python_error();
  if (PyObject_Size(all.ptr()) <= 0) return false;
  const nb::object value = all.attr("get")(nb::handle(name));
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth == 1;
}

// Calls visit(key object, child, whether it is static) for each field of a dataclass.
// Children are kept alive by the container, but for dataclass attributes that are computed: those are not fields.
template <class Visit> void visit_dataclass(PyObject* object, PyObject* fields, Visit&& visit) {
  PyObject *key = nullptr, *field = nullptr;
  for (Py_ssize_t at = 0; next_field(fields, at, key, field);) {
    const nb::object child = nb::steal(PyObject_GetAttr(object, key));
    if (!child.is_valid()) throw nb::python_error();
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
      nb::object result = nb::steal(PyTuple_New(token.arity));
      for (std::int32_t i = 0; i < token.arity; ++i)
        PyTuple_SET_ITEM(result.ptr(), i, build(tokens, at, next).release().ptr());
      if (token.kind == Kind::Tuple) return result;
      return nb::steal(PyObject_CallObject(token.object, result.ptr()));
    }
    case Kind::Data: {
      // Not through __init__, which may check or convert what traced values cannot give.
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

void paths(const Tokens& tokens, std::size_t& at, const std::string& prefix, std::vector<std::string>& out) {
  const Depth depth(in_a_tree);
  const Token token = tokens[at++];
  if (token.kind == Kind::Leaf) out.push_back(prefix);
  for (std::int32_t i = 0; i < token.arity; ++i) {
    const std::string name = name_of_child(token, static_cast<std::size_t>(i), tokens, at);
    const bool field = token.kind == Kind::Named || token.kind == Kind::Data;
    const bool quoted = token.kind == Kind::Dict && PyUnicode_Check(tokens[at].object);
    if (token.kind == Kind::Dict) ++at;
    paths(tokens, at, prefix + (field ? "." + name : "[" + (quoted ? "'" + name + "'" : name) + "]"), out);
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
      Tokens probe;
      std::vector<PyObject*> found;
      flatten(tree.ptr(), probe, found);
      if (probe.size() != 1 || probe[0].kind != Kind::Leaf) throw differs("one array");
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
        const nb::handle key(tokens[at++].object);
        PyObject* child = PyDict_GetItemWithError(tree.ptr(), key.ptr());
        if (child == nullptr) throw differs("the key " + text(key));
        match(tokens, at, child, path + "['" + text(key) + "']", what, leaves);
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
        match(tokens, at, nb::object(tree[i]), path + "[" + std::to_string(i) + "]", what, leaves);
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

Structure::Structure(const Tokens& tokens) {
  for (const Token& t : tokens) {
    if (owns_object(t.kind)) Py_INCREF(t.object);
    num_leaves_ += t.kind == Kind::Leaf;
  }
  tokens_ = std::shared_ptr<const Tokens>(new Tokens(tokens), [](const Tokens* owned) {
    if (python_lives()) {
      const GilAcquired gil;
      for (const Token& t : *owned)
        if (owns_object(t.kind)) Py_DECREF(t.object);
    }
    delete owned;
  });
}

Structure Structure::with_frozen_values(Tokens tokens) {
  std::vector<nb::object> kept;
  for (Token& t : tokens) {
    if (t.kind != Kind::Static) continue;
    kept.push_back(frozen(t.object));
    t.object = kept.back().ptr();
  }
  return Structure(tokens);
}

bool Structure::equals(const Tokens& other) const {
  if (tokens_->size() != other.size()) return false;
  for (std::size_t i = 0; i < other.size(); ++i) {
    const Token &a = (*tokens_)[i], &b = other[i];
    if (a.kind != b.kind || a.arity != b.arity) return false;
    if (a.object != b.object && !same_static(a.object, b.object)) return false;
  }
  return true;
}

std::string Structure::str() const {
  std::vector<nb::object> stars(num_leaves_, nb::str("*"));
  return nb::cast<std::string>(nb::repr(unflatten(*this, stars)));
}

void flatten(PyObject* tree, Tokens& tokens, std::vector<PyObject*>& leaves) {
  if (PyDict_Check(tree)) {
    const Depth depth(in_a_tree);
    tokens.push_back({Kind::Dict, static_cast<std::int32_t>(PyDict_GET_SIZE(tree))});
    PyObject *key = nullptr, *child = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(tree, &at, &key, &child) != 0;) {
      tokens.push_back({Kind::Key, 0, key});
      flatten(child, tokens, leaves);
    }
  } else if (PyList_Check(tree)) {
    const Depth depth(in_a_tree);
    tokens.push_back({Kind::List, static_cast<std::int32_t>(PyList_GET_SIZE(tree))});
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tree); ++i) flatten(PyList_GET_ITEM(tree, i), tokens, leaves);
  } else if (PyTuple_Check(tree)) {
    const Depth depth(in_a_tree);
    const bool named = !PyTuple_CheckExact(tree) && fields_of_named(Py_TYPE(tree)) != nullptr;
    tokens.push_back({named ? Kind::Named : Kind::Tuple, static_cast<std::int32_t>(PyTuple_GET_SIZE(tree)),
                      named ? reinterpret_cast<PyObject*>(Py_TYPE(tree)) : nullptr});
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tree); ++i) flatten(PyTuple_GET_ITEM(tree, i), tokens, leaves);
  } else if (tree == Py_None) {
    tokens.push_back({Kind::None});
  } else if (PyObject* fields = PyType_Check(tree) ? nullptr : fields_of_dataclass(Py_TYPE(tree)); fields != nullptr) {
    const Depth depth(in_a_tree);
    const std::size_t at = tokens.size();
    tokens.push_back({Kind::Data, 0, reinterpret_cast<PyObject*>(Py_TYPE(tree))});
    visit_dataclass(tree, fields, [&](PyObject*, PyObject* child, bool is_static) {
      ++tokens[at].arity;
      if (is_static)
        tokens.push_back({Kind::Static, 0, child});
      else
        flatten(child, tokens, leaves);
    });
  } else {
    tokens.push_back({Kind::Leaf});
    leaves.push_back(tree);
  }
}

std::pair<std::vector<nb::object>, Structure> flatten(nb::handle tree) {
  Tokens tokens;
  std::vector<PyObject*> borrowed;
  flatten(tree.ptr(), tokens, borrowed);
  std::vector<nb::object> leaves;
  for (PyObject* leaf : borrowed) leaves.push_back(nb::borrow(leaf));
  return {std::move(leaves), Structure(tokens)};
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

namespace {

// The same for equal structures: of what equality looks at, kinds and texts.
Py_hash_t hash_of(const Structure& structure) {
  std::size_t h = structure.tokens().size();
  const auto mix = [&](std::size_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15u; };
  for (const Token& token : structure.tokens()) {
    mix(static_cast<std::size_t>(token.kind) + 16 * static_cast<std::size_t>(token.arity));
    if (token.object != nullptr && PyUnicode_CheckExact(token.object))
      mix(static_cast<std::size_t>(PyObject_Hash(token.object)));
  }
  return static_cast<Py_hash_t>(h >> 1);
}

}  // namespace

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
      .def("__hash__", &hash_of)
      .def("__repr__", [](const Structure& s) { return "Structure(" + s.str() + ")"; });
  m.def(
      "tree_flatten", [](nb::handle tree) { return flatten(tree); }, nb::arg("tree").none());
}

}  // namespace hotloop::python
