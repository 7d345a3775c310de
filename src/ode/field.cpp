#include "hotloop/error.h"
#include "hotloop/ode.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop::ode {

Value Scalar::as(DType dtype) const {
  if (is_number()) return constant(number_, dtype);
  if (!is_float(value_.dtype()) || value_.rank() != 0)
    throw UserError("ode", "times must be numbers or float scalars", value_.type().str(),
                    "take one element, or cast()");
  return value_.dtype() == dtype ? value_ : cast(value_, dtype);
}

VectorField::VectorField(Field field, Tree<Value> args, Tree<Value> like, Scalar direction)
    : field_(std::move(field)), args_(std::move(args)), like_(std::move(like)), direction_(direction) {
  like_.for_each([&](const std::string& name, const Value& leaf) {
    if (!leaf.defined())
      throw UserError("ode.solve", "leaves of the state must be values",
                      (name.empty() ? "y0" : "y0." + name) + " = an undefined value");
    if (!is_float(leaf.dtype()))
      throw UserError("ode.solve", "leaves of the state must be f32 or f64",
                      (name.empty() ? "y0" : "y0." + name) + " = " + leaf.type().str(),
                      "cast() it, or put it into args");
    if (leaf.dtype() == DType::F64) time_dtype_ = DType::F64;
  });
}

Value VectorField::time(Value s) const {
  if (direction_.is_number()) return direction_.number() > 0 ? s : -s;
  return direction_.as(time_dtype_) * s;
}

Leaves VectorField::operator()(Value s, const Leaves& y) const {
  ++*num_evaluations_;
  const Tree<Value> slope = field_(time(s), like_.unflatten(y), args_);
  if (slope.names() != like_.names()) {
    const auto list = [](const Tree<Value>& tree) {
      if (tree.is_leaf()) return std::string("one leaf");
      std::string text;
      for (const std::string& name : tree.names()) text += (text.empty() ? "" : ", ") + name;
      return "{" + text + "}";
    };
    throw UserError("ode.solve", "the field must give a tree like the state, " + list(like_), list(slope));
  }
  Leaves leaves = slope.flatten();
  const auto names = like_.names();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].defined() || leaves[i].type() != y[i].type())
      throw UserError("ode.solve", "the field must give the state's shapes and dtypes, " + y[i].type().str(),
                      (names[i].empty() ? "dy/dt" : "dy/dt of " + names[i]) + " = " +
                          (leaves[i].defined() ? leaves[i].type().str() : "an undefined value"),
                      leaves[i].defined() && leaves[i].shape() == y[i].shape()
                          ? "y0 and args of one dtype, or cast() the result"
                          : "one number for each of the state's");
    if (!direction_.is_number())
      leaves[i] = cast(direction_.as(time_dtype_), leaves[i].dtype()) * leaves[i];
    else if (direction_.number() < 0)
      leaves[i] = -leaves[i];
  }
  return leaves;
}

}  // namespace hotloop::ode
