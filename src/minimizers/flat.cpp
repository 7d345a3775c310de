#include "minimizers/flat.h"

#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::minimizers {

Flat::Flat(const std::string& where, const Tree<Value>& params)
    : like_(params.map([](const Value& leaf) { return leaf.type(); })) {
  params.for_each([&](const std::string& name, const Value& leaf) {
    if (!is_float(leaf.dtype()))
      throw UserError(where, "parameters must be floats", (name.empty() ? "" : name + ": ") + leaf.type().str(),
                      "keep what is no parameter outside of the tree, the function may use it from there");
    if (leaf.dtype() == DType::F64) dtype_ = DType::F64;
    size_ += leaf.shape().size();
  });
  if (size_ == 0) throw UserError(where, "there must be a parameter", "a tree without numbers");
}

Value Flat::pack(std::span<const Value> leaves) const {
  std::vector<Value> parts;
  for (const Value& leaf : leaves) {
    const Value vector = reshape(leaf, {leaf.shape().size()});
    parts.push_back(vector.dtype() == dtype_ ? vector : cast(vector, dtype_));
  }
  return parts.size() == 1 ? parts[0] : concat(parts, 0);
}

Value Flat::pack(const Tree<Value>& params) const { return pack(params.flatten()); }

Tree<Value> Flat::unpack(Value flat) const {
  std::int64_t start = 0;
  return like_.map([&](const ValueType& leaf) {
    const Value part = reshape(narrow(flat, 0, start, leaf.shape.size()), leaf.shape);
    start += leaf.shape.size();
    return leaf.dtype == dtype_ ? part : cast(part, leaf.dtype);
  });
}

}  // namespace hotloop::minimizers
