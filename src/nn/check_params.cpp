#include "nn/check_params.h"

#include <algorithm>
#include <vector>

#include "hotloop/error.h"

namespace hotloop::nn {
namespace {

using Leaves = std::vector<std::pair<std::string, ValueType>>;

Leaves types_of(const Tree<Array>& tree) {
  Leaves leaves;
  tree.for_each([&](const std::string& name, const Array& leaf) { leaves.emplace_back(name, leaf.type()); });
  return leaves;
}

const ValueType* find(const Leaves& leaves, const std::string& name) {
  const auto it = std::ranges::find(leaves, name, &Leaves::value_type::first);
  return it == leaves.end() ? nullptr : &it->second;
}

}  // namespace

void check_defined(const std::string& where, const std::string& what, const Tree<Array>& tree) {
  tree.for_each([&](const std::string& name, const Array& leaf) {
    if (!leaf.defined())
      throw UserError(where, what + " must be arrays that are defined", name + " = Array(), which has no memory");
  });
}

void check_params(const std::string& where, const Layer& model, const Tree<Array>& params, Dtypes dtypes) {
  check_defined(where, "params", params);
  const Leaves given = types_of(params);
  DType dtype = DType::F32;
  if (const auto it = std::ranges::find_if(given, [](const auto& leaf) { return is_float(leaf.second.dtype); });
      it != given.end())
    dtype = it->second.dtype;
  const auto agree = [&](const ValueType& a, const ValueType& b) {
    return dtypes == Dtypes::Any ? a.shape == b.shape : a == b;
  };
  const Leaves torch = types_of(model.init(0, dtype));
  const auto is_as = [&](const auto& own, const auto& leaf) {
    return own.first == leaf.first && agree(own.second, leaf.second);
  };
  if (std::ranges::is_permutation(torch, given, is_as)) return;

  const Leaves keras = types_of(model.init(0, dtype, Init::Keras));
  const std::string remedy = "those that model.init(seed) gave, or that it was trained with";
  const auto refuse = [&](const std::string& name, const ValueType& own, const std::string& received) {
    throw UserError(where, "params must be the model's own, " + name + " = " + own.str(), received, remedy);
  };
  for (const Leaves* all : {&torch, &keras})
    for (const auto& [name, own] : *all) {
      const ValueType *leaf = find(given, name), *in_torch = find(torch, name), *in_keras = find(keras, name);
      if (leaf == nullptr) {
        if (in_torch != nullptr && in_keras != nullptr) refuse(name, own, "no " + name);
        continue;
      }
      if (!(in_torch != nullptr && agree(*in_torch, *leaf)) && !(in_keras != nullptr && agree(*in_keras, *leaf)))
        refuse(name, own, leaf->str());
    }
  for (const auto& [name, type] : given)
    if (find(torch, name) == nullptr && find(keras, name) == nullptr)
      throw UserError(where, "params must be the model's own, which has no " + name, name + " = " + type.str(), remedy);
}

}  // namespace hotloop::nn
