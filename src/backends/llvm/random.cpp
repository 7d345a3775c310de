// Random words: Philox2x32-10 (core/philox.h) in lanes of 64 bits, which is what the product of a round takes. A block has two words, so lanes
// whose indices follow one another need half as many blocks, and its two words lie in a lane as they do in the result.
#include <algorithm>

#include "backends/llvm/point_code.h"
#include "core/philox.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

using kernel::Instr;

Code::Values Code::random_keys(Value* key0, Value* key1, int lanes) {
  Values keys;
  const auto wide = [&](Value* word) { return widen(b.CreateZExt(word, type(DType::I64, lanes_in(word))), lanes); };
  keys.push_back(wide(key1));
  for (int round = 0; round < philox_rounds; ++round) {
    keys.push_back(wide(key0));
    key0 = b.CreateAdd(key0, splat(key0, philox_weyl));
  }
  return keys;
}

Code::Words Code::random_words(Value* block, const Values& keys) {
  Words words{block, keys[0]};
  for (int round = 1; round <= philox_rounds; ++round) {
    Value* product = b.CreateMul(words.even, splat(block, philox2x32_factor));
    words.even = b.CreateXor(b.CreateXor(b.CreateLShr(product, 32), keys[static_cast<std::size_t>(round)]), words.odd);
    words.odd = low_word(product);
  }
  return words;
}

PointCode::RandomUse PointCode::random_use(int i, int lanes) const {
  const Instr& it = nest_.instr(i);
  if (nest_.instr(it.args[0]).kind != Instr::Kind::Index) return {};
  const IndexUse& use = nest_.uses[static_cast<std::size_t>(it.args[0])];
  const AccessGroup& group = nest_.index_groups[static_cast<std::size_t>(use.group)];
  // Vectors begin at a multiple of their lanes.
  const bool fills = lanes > 1;
  for (int d = 0; d < static_cast<int>(group.coefficients.size()); ++d)
    if (group.coefficients[static_cast<std::size_t>(d)] % 2 != 0 && !(fills && d == nest_.vector_dim)) return {};
  if (!group.is_even) return {};
  const std::int64_t step = fills ? group.coefficients[static_cast<std::size_t>(nest_.vector_dim)] : 0;
  if (step % 2 == 0) return {RandomUse::OneWord, step / 2};
  const bool one_key = !fills || (nest_.uniform[static_cast<std::size_t>(it.args[1])] &&
                                  nest_.uniform[static_cast<std::size_t>(it.args[2])]);
  if (step == 1 && use.displacement % 2 == 0 && one_key) return {RandomUse::BothWords, 1};
  return {};
}

void PointCode::hoist_random_keys(Point& point) {
  for (int i = 0; i < nest_.body_end; ++i) {
    const Instr& it = nest_.instr(i);
    if (it.kind != Instr::Kind::Op || it.op != kernel::ScalarOp::Random) continue;
    const auto key0 = static_cast<std::size_t>(it.args[1]), key1 = static_cast<std::size_t>(it.args[2]);
    if (!nest_.hoistable[key0] || !nest_.hoistable[key1] || nest_.uniform[static_cast<std::size_t>(i)]) continue;
    const int lanes = random_use(i, nest_.lanes).words == RandomUse::BothWords ? nest_.lanes / 2 : nest_.lanes;
    Code::Values& keys = point.random_keys[{it.args[1], it.args[2], lanes}];
    if (keys.empty()) keys = code_.random_keys(point.registers[key0], point.registers[key1], lanes);
  }
}

Value* PointCode::random(const Point& point, int i, int lanes) {
  auto& b = code_.b;
  const Instr& it = nest_.instr(i);
  const RandomUse use = random_use(i, lanes);
  const int count = use.words == RandomUse::BothWords ? lanes / 2 : lanes;
  Value* block = nullptr;
  if (use.words == RandomUse::AnyWord) {
    block = b.CreateZExt(b.CreateLShr(operand(point, it.args[0], lanes), 1), code_.type(DType::I64, count));
  } else {
    const IndexUse& at = nest_.uses[static_cast<std::size_t>(it.args[0])];
    Value* first = b.CreateAdd(point.indices[static_cast<std::size_t>(at.group)], code_.i64(at.displacement & ~1));
    block = code_.widen(b.CreateLShr(first, 1), count);
    if (count > 1) block = b.CreateAdd(block, code_.lane_numbers(b.getInt64Ty(), count, use.step));
    block = code_.low_word(block);
  }
  const auto hoisted = point.random_keys.find({it.args[1], it.args[2], count});
  const Code::Words words = code_.random_words(
      block, hoisted != point.random_keys.end()
                 ? hoisted->second
                 : code_.random_keys(operand(point, it.args[1], 1), operand(point, it.args[2], 1), count));
  llvm::Type* const type = code_.type(DType::U32, lanes);
  if (use.words == RandomUse::BothWords)
    return b.CreateBitCast(b.CreateOr(words.even, b.CreateShl(words.odd, 32)), type);
  if (use.words == RandomUse::OneWord) {
    const bool odd = nest_.uses[static_cast<std::size_t>(it.args[0])].displacement % 2 != 0;
    return b.CreateTrunc(odd ? words.odd : words.even, type);
  }
  Value* is_odd = b.CreateTrunc(operand(point, it.args[0], lanes), code_.type(DType::Bool, lanes));
  return b.CreateTrunc(b.CreateSelect(is_odd, words.odd, words.even), type);
}

}  // namespace hotloop::codegen
