// rem of floats: exact, like every remainder.
#include "schedule/math/expand.h"

namespace hotloop::kernel::math {

int rem(Expander& e, int x, int y) {
  const int a = e.abs(x), b = e.abs(y), quotient = e.div(a, b), whole = e.op(ScalarOp::Floor, quotient);
  int rest;
  if (e.has_fma()) {
    rest = e.fma(e.neg(whole), b, a);
  } else {
    const Pair taken = product(e, whole, b);
    rest = e.sub(e.sub(a, taken.high), taken.low);
  }
  // A quotient just below a whole number may have been rounded up to it.
  rest = e.select(e.less(rest, e.constant(0)), e.add(rest, b), rest);
  rest = e.select(e.less(quotient, e.constant(1)), a, rest);  // infinity leaves all of a number
  return e.op(ScalarOp::FarRem, x, y, e.copy_sign(rest, x));
}

}  // namespace hotloop::kernel::math
