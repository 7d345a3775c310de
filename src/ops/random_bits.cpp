#include <algorithm>
#include <string>

#include "core/philox.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value random_bits(Value key, const Shape& shape) {
  ir::require_defined("random_bits", {&key, 1});
  std::vector<std::int64_t> extents = key.shape().vec();
  if (!extents.empty()) extents.pop_back();
  for (const std::int64_t extent : shape.vec()) extents.push_back(extent);
  return ir::append_op("random_bits", {key}, {{"shape", std::move(extents)}});
}

namespace ir {
namespace {

// Keys lie along the leading axes of the result, each with words for the others.
std::int64_t words_per_key(const Shape& keys, const Shape& result) {
  std::int64_t words = 1;
  for (int i = keys.rank() - 1; i < result.rank(); ++i) words *= result[i];
  return words;
}

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType& keys = c.operands[0];
  const Shape shape(c.attrs.integers("shape"));
  const int lanes = keys.shape.rank() - 1;
  if (keys.dtype != DType::U32 || lanes < 0 || keys.shape[lanes] != 2)
    throw UserError("random_bits", "a key must be u32[2]", keys.str());
  HOTLOOP_CHECK(shape.rank() >= lanes, "random_bits has a lane for each key");
  for (int i = 0; i < lanes; ++i) HOTLOOP_CHECK(shape[i] == keys.shape[i], "random_bits has a lane for each key");
  if (words_per_key(keys.shape, shape) > std::int64_t{1} << 32)
    throw UserError("random_bits", "a key gives at most 2^32 words", shape.str(), "a key for each part, by split()");
  return {{DType::U32, shape}};
}

std::vector<Array> eval(const EvalContext& c) {
  const Array& keys = c.operands[0];
  const auto key = keys.data<std::uint32_t>();
  Array out(DType::U32, c.node.types[0].shape);
  const auto words = out.data<std::uint32_t>();
  const auto each = static_cast<std::size_t>(words_per_key(keys.shape(), out.shape()));
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t lane = i / each;
    words[i] = random_word(static_cast<std::uint32_t>(i % each), key[2 * lane], key[2 * lane + 1]);
  }
  return {out};
}

}  // namespace

std::vector<OpDef> ops_random_bits() {
  OpDef def;
  def.name = "random_bits";
  def.summary =
      "random u32 words (Philox2x32-10), a pure function of the key (u32[2], or one a lane) and each element's flat "
      "index";
  def.kind = OpKind::RandomBits;
  def.num_operands = 1;
  def.cost_per_element = 20;
  def.infer = infer;
  def.eval = eval;
  def.axes = [](const Node& node) {
    const int lanes = node.operands[0].rank() - 1;
    std::vector<AxisLink> links;
    for (int i = 0; i < lanes; ++i) links.push_back({0, i, i});
    links.push_back({0, lanes, -1, AxisUse::Mixed});
    return links;
  };
  def.extents = "shape";
  // Only a batched key comes here; with an unbatched one every lane shares the bits.
  def.batch = [](const BatchContext& c) {
    std::vector<std::int64_t> extents = c.node.types[0].shape.vec();
    extents.insert(extents.begin(), c.size);
    return std::vector<Batched>{
        {append_op("random_bits", {c.operands[0].value}, {{"shape", std::move(extents)}}), true}};
  };
  def.samples = [](Rng& rng, DType) {
    std::vector<Sample> samples;
    const auto sample = [&](const Shape& keys, const Shape& shape) {
      samples.push_back({{random_array(rng, DType::U32, keys, 0, 4e9)}, {{"shape", shape.vec()}}, {}});
    };
    for (const Shape& shape : sample_shapes()) sample({2}, shape);
    sample({5, 2}, {5});
    sample({3, 2}, {3, 7});
    sample({2, 3, 2}, {2, 3, 4});
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
