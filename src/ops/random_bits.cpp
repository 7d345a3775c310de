#include "core/philox.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/philox.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value random_bits(Value key, const Shape& shape) {
  ir::require_defined("random_bits", {&key, 1});
  return ir::append_op("random_bits", {key}, {{"shape", shape.vec()}});
}

namespace ir {
namespace {

// Element i of the result is word i % 4 of Philox4x32-10 at the counter (i / 4 as two words, low first, 0, 0).
std::vector<Array> eval(const EvalContext& c) {
  const auto key = c.operands[0].data<std::uint32_t>();
  Array out(DType::U32, c.node.types[0].shape);
  const auto words = out.data<std::uint32_t>();
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t block = i / 4;
    const auto four = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                                 {key[0], key[1]});
    words[i] = four[i % 4];
  }
  return {out};
}

}  // namespace

std::vector<OpDef> ops_random_bits() {
  OpDef def;
  def.name = "random_bits";
  def.summary = "random u32 words (Philox4x32-10), a pure function of the key (u32[2]) and each element's flat index";
  def.kind = OpKind::RandomBits;
  def.num_operands = 1;
  def.cost_per_element = 20;
  def.infer = [](const InferContext& c) {
    if (c.operands[0] != ValueType{DType::U32, {2}})
      throw UserError("random_bits", "the key must be u32[2]", c.operands[0].str());
    return std::vector<ValueType>{{DType::U32, Shape(c.attrs.integers("shape"))}};
  };
  def.eval = eval;
  def.axes = [](const Node&) { return std::vector<AxisLink>{{0, 0, -1, AxisUse::Mixed}}; };
  def.extents = "shape";
  // Only a batched key comes here; with an unbatched one every lane shares the bits.
  def.batch = [](const BatchContext& c) {
    return std::vector<Batched>{{random_bits_of_lanes(c.operands[0].value, c.node.types[0].shape), true}};
  };
  def.samples = [](Rng& rng, DType) {
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes())
      samples.push_back({{random_array(rng, DType::U32, {2}, 0, 4e9)}, {{"shape", shape.vec()}}, {}});
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
