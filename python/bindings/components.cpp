#include "components.h"

#include <nanobind/stl/string.h>

#include "hotloop/error.h"

namespace hotloop::python {

std::int64_t integer_of(nb::handle value, const std::string& where, const std::string& name) {
  std::int64_t result = 0;
  if (!nb::try_cast(value, result))
    throw UserError(where, name + " must be an integer, of 64 bits at most", nb::cast<std::string>(nb::repr(value)));
  return result;
}

std::uint64_t seed_number(nb::handle value, const std::string& where) {
  std::uint64_t result = 0;
  if (!nb::try_cast(value, result))
    throw UserError(where, "seed must be an integer from 0 and below 2^64", nb::cast<std::string>(nb::repr(value)));
  return result;
}

std::map<std::string, Setting> settings_of(nb::dict settings) {
  std::map<std::string, Setting> result;
  for (const auto& [key, value] : settings) {
    const auto name = nb::cast<std::string>(key);
    if (PyBool_Check(value.ptr())) {
      result[name] = nb::cast<bool>(value);
    } else if (nb::isinstance<nb::str>(value)) {
      result[name] = nb::cast<std::string>(value);
    } else if (const nb::object whole = nb::steal(PyNumber_Index(value.ptr())); whole.is_valid()) {
      result[name] = integer_of(whole, name, "a setting");
    } else if (PyErr_Clear(); nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
      std::string numbers;  // as a configuration file has them
      for (const nb::handle number : value)
        numbers += (numbers.empty() ? "" : ", ") + nb::cast<std::string>(nb::str(number));
      result[name] = numbers;
    } else if (const nb::object number = nb::steal(PyNumber_Float(value.ptr())); number.is_valid()) {
      result[name] = nb::cast<double>(number);
    } else {
      PyErr_Clear();
      throw UserError(name, "a setting must be a number, a text, True or False, or a list of numbers",
                      nb::cast<std::string>(nb::repr(value)));
    }
  }
  return result;
}

nn::Init init_of(nb::handle name) {
  if (name.equal(nb::str("torch"))) return nn::Init::Torch;
  if (name.equal(nb::str("keras"))) return nn::Init::Keras;
  throw UserError("init", "init must be \"torch\" or \"keras\"", nb::cast<std::string>(nb::repr(name)));
}

Tree<Array> array_tree(nb::handle tree, const std::string& what) {
  const auto [leaves, structure] = flatten(tree);
  std::vector<Array> arrays;
  for (const nb::object& leaf : leaves) {
    if (is_tracer(leaf))
      throw UserError(what, "arrays with numbers are needed", "a traced value", "call it outside the traced function");
    arrays.push_back(to_array(leaf, what));
  }
  return named_tree(what, structure, arrays);
}

Tree<Array> inputs_of(nb::handle x) { return array_tree(x, "x"); }

Tree<Value> value_tree(nb::handle tree, const std::string& what) {
  const auto [leaves, structure] = flatten(tree);
  std::vector<Value> values;
  for (const nb::object& leaf : leaves) values.push_back(to_value(leaf, what));
  return named_tree(what, structure, values);
}

Tree<Value> numbered(const std::vector<Value>& values) {
  Tree<Value> tree;
  for (std::size_t i = 0; i < values.size(); ++i) tree.set(std::to_string(i), values[i]);
  return tree;
}

nb::object to_dicts(const Tree<Array>& tree) {
  return to_dicts(tree, [](const Array& array) { return to_python(array); });
}
nb::object to_dicts(const Tree<Value>& tree) {
  return to_dicts(tree, [](const Value& value) { return tracer(value); });
}

}  // namespace hotloop::python
