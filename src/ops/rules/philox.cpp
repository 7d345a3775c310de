#include "ops/rules/philox.h"

#include <array>

#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::ir {
namespace {

// High and low words of factor * x.
struct Product {
  Value high, low;
};
Product wide_product(std::uint32_t factor, Value x) {
  const Value product = cast(x, DType::I64) * static_cast<double>(factor);
  return {cast(shift_right(product, like(product, 32)), DType::U32), cast(product, DType::U32)};
}

}  // namespace

Value random_bits_of_lanes(Value keys, const Shape& shape) {
  const std::int64_t lanes = keys.shape()[0], n = shape.size(), blocks = (n + 3) / 4;
  HOTLOOP_CHECK(blocks < (std::int64_t{1} << 32), "the counter's high word is zero");
  const Shape each{lanes, blocks};
  Value key[2];
  for (int i = 0; i < 2; ++i) key[i] = broadcast(take(keys, 1, i), each, {0});
  const Value zero = constant(0, DType::U32, each);
  std::array<Value, 4> counter = {iota(DType::U32, each, 1), zero, zero, zero};
  for (int round = 0; round < 10; ++round) {
    const Product a = wide_product(0xD2511F53, counter[0]), b = wide_product(0xCD9E8D57, counter[2]);
    counter = {bit_xor(bit_xor(b.high, counter[1]), key[0]), b.low, bit_xor(bit_xor(a.high, counter[3]), key[1]),
               a.low};
    key[0] = key[0] + static_cast<double>(0x9E3779B9);
    key[1] = key[1] + static_cast<double>(0xBB67AE85);
  }
  const Value words = reshape(stack(counter, 2), {lanes, 4 * blocks});
  return reshape(narrow(words, 1, 0, n), shape.with_inserted(0, lanes));
}

}  // namespace hotloop::ir
