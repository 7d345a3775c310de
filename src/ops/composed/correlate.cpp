// Sums of products of shifted vectors, what convolutions are made of.
#include <string>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/composed/linear_call.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

// Windows of whichever is shorter, w or the result.
Value products(Value x, Value w) {
  const std::int64_t size = w.shape()[0], count = x.shape()[0] - size + 1;
  return size <= count ? matmul(windows(x, 0, size), w) : matmul(w, windows(x, 0, count));
}

// Both are sums of the same kind, where what transposes windows would be a sum of many pieces.
std::vector<Value> pull_back(std::span<const Value> primals, std::span<const Value>,
                             std::span<const Value> cotangents) {
  const Value x = primals[0], w = primals[1], ct = cotangents[0];
  const std::int64_t beyond = w.shape()[0] - 1;
  return {products(pad(ct, constant(0, ct.dtype()), {beyond}, {beyond}, {0}), reverse(w, {0})), products(x, ct)};
}

}  // namespace

Value correlate(Value x, Value w) {
  const std::vector<Value> operands = {x, w};
  ir::require_defined("correlate", operands);
  if (x.rank() != 1 || w.rank() != 1 || x.dtype() != w.dtype() || w.shape()[0] == 0 || w.shape()[0] > x.shape()[0])
    throw UserError("correlate",
                    "there must be two vectors of one dtype, the second one with at least one element and no longer",
                    x.type().str() + " and " + w.type().str(), "pad()");
  if (!is_float(x.dtype())) return products(x, w);
  const auto body = [](std::span<const Value> v) { return std::vector<Value>{products(v[0], v[1])}; };
  return ir::custom_vjp("correlate", body, pull_back, operands)[0];
}

}  // namespace hotloop
