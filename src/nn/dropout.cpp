#include "nn/dropout.h"

#include <cmath>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::nn {

Value dropout_factor(const Context& context, const ValueType& type, double rate) {
  if (!context.key.defined())
    throw UserError(
        "dropout", "training needs a key to draw random numbers from", "none",
        "a key for the call: key=hl.random.key(0) from Python; StepOptions::key, or a Context with a key, in C++");
  // 32 random bits are below rate 2^32 with that probability, to one part in 2^32.
  const Value bits = random_bits(context.key, type.shape);
  const Value kept = greater_equal(bits, constant(std::floor(rate * 0x1p32), DType::U32));
  return select(kept, constant(1 / (1 - rate), type.dtype, type.shape), constant(0, type.dtype, type.shape));
}

void check_dropout_rate(const std::string& where, double rate) {
  if (!(rate >= 0 && rate < 1)) throw UserError(where, "the dropout rate must be in [0, 1)", print_number(rate));
}

}  // namespace hotloop::nn
