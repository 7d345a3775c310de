#include "hotloop/ops.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value shift_left(Value a, Value b) { return ir::append_binary("shl", a, b); }
Value shift_right(Value a, Value b) { return ir::append_binary("shr", a, b); }

namespace ir {
namespace {

// Counts are taken modulo the width.
template <class T> auto count_of(T b) { return static_cast<std::make_unsigned_t<T>>(b) % (8 * sizeof(T)); }

OpDef shift(const std::string& name, const std::string& summary, ScalarOp scalar) {
  OpDef def = binary_op(name, summary, scalar, Accepts::Integers);
  def.samples = [](Rng& rng, DType) {
    std::vector<Sample> samples;
    for (DType d : {DType::I32, DType::U32, DType::I64}) {
      for (const Shape& shape : sample_shapes()) {
        const double low = d == DType::U32 ? 0 : -2;
        samples.push_back(
            {{random_array(rng, d, shape, low * 1e9, 2e9), random_array(rng, d, shape, low, 40)}, {}, {}});
      }
    }
    return samples;
  };
  return def;
}

}  // namespace

std::vector<OpDef> ops_shift() {
  OpDef left = shift("shl", "a shifted left by b bits, b modulo the width", ScalarOp::Shl);
  left.eval = eval_elementwise(
      []<std::integral T>(T a, T b) { return wrapping(a, b, [](auto x, auto n) { return x << count_of(n); }); });
  OpDef right = shift("shr", "a shifted right by b bits, b modulo the width; copies of the sign come in if a is signed",
                      ScalarOp::Shr);
  right.eval = eval_elementwise([]<std::integral T>(T a, T b) { return static_cast<T>(a >> count_of(b)); });
  return {left, right};
}

}  // namespace ir
}  // namespace hotloop
