#include "hotloop/ops.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value shift_left(Value a, Value b) { return ir::append_binary("shl", a, b); }
Value shift_right(Value a, Value b) { return ir::append_binary("shr", a, b); }

namespace ir {
namespace {

// A negative count is a large one, as an unsigned number is: every bit is shifted out.
template <class T> bool shifts_all_out(T count) {
  return static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(count)) >= 8 * sizeof(T);
}

OpDef shift(const std::string& name, const std::string& summary, ScalarOp scalar) {
  OpDef def = binary_op(name, summary, scalar, Accepts::Integers);
  def.samples = [](Rng& rng, DType) {
    std::vector<Sample> samples;
    for (DType d : {DType::I32, DType::U32, DType::I64}) {
      for (const Shape& shape : sample_shapes()) {
        const double low = d == DType::U32 ? 0 : -2;
        samples.push_back({{random_array(rng, d, shape, low * 1e9, 2e9), random_array(rng, d, shape, low, 40)}, {}, {}});
      }
    }
    return samples;
  };
  return def;
}

}  // namespace

std::vector<OpDef> ops_shift() {
  OpDef left = shift("shl", "a shifted left by b bits; 0 when b is negative or has no place in the type", ScalarOp::Shl);
  left.eval = eval_elementwise([]<std::integral T>(T a, T b) {
    return shifts_all_out(b) ? T{0} : wrapping(a, b, [](auto x, auto n) { return x << n; });
  });
  OpDef right = shift("shr", "a shifted right by b bits, with copies of the sign if a is signed; b out of range shifts all out",
                      ScalarOp::Shr);
  right.eval = eval_elementwise([]<std::integral T>(T a, T b) {
    return shifts_all_out(b) ? static_cast<T>(a < T{0} ? -1 : 0) : static_cast<T>(a >> b);
  });
  return {left, right};
}

}  // namespace ir
}  // namespace hotloop
