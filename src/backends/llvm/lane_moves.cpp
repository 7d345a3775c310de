// Code that moves elements between the lanes of vectors: gathers of few vectors, reductions over lanes.
#include <algorithm>

#include "backends/llvm/code.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

// Elements at known places that a few vectors cover are moved within registers: a gather takes as long as a load for every lane. What is
// read lies between the first and the last of the elements.
Value* Code::gather_by_vectors(DType dtype, Value* pointer, Value* indices, Value* mask) {
  constexpr std::size_t most_vectors = 4;
  const int lanes = lanes_in(indices);
  const auto* places = llvm::dyn_cast<llvm::ConstantDataVector>(indices);
  const auto active = known_lanes(mask, lanes);
  const std::int64_t bytes = bytes_of(dtype);
  if (state_.register_bytes != kernel::vector_bytes || places == nullptr || !active || *active == 0) return nullptr;
  if (bytes < 4 || lanes * bytes < state_.register_bytes / 2) return nullptr;
  std::vector<std::int64_t> wanted;
  for (int l = 0; l < *active; ++l)
    wanted.push_back(
        llvm::cast<llvm::ConstantInt>(places->getElementAsConstant(static_cast<unsigned>(l)))->getSExtValue());
  std::vector<std::int64_t> sorted = wanted;
  std::ranges::sort(sorted);
  const std::int64_t span = sorted.back() - sorted.front() + 1;
  const std::int64_t last = sorted.front() + std::max<std::int64_t>(span - lanes, 0);  // where the last vector begins
  std::vector<std::int64_t> starts;
  for (const std::int64_t place : sorted)
    if (starts.empty() || place >= starts.back() + lanes) starts.push_back(std::min(place, last));
  if (starts.size() > most_vectors) return nullptr;

  Value* result = nullptr;
  std::vector<int> found(static_cast<std::size_t>(lanes), -1);  // where each lane's element lies in `result`
  for (const std::int64_t start : starts) {
    Value* vector =
        load(dtype, offset(pointer, start * bytes), 1, lanes, span < lanes ? tail_mask(lanes, i64(span)) : nullptr);
    std::vector<int> chosen = found;
    for (std::size_t l = 0; l < wanted.size(); ++l)
      if (found[l] < 0 && wanted[l] >= start && wanted[l] < start + lanes)
        chosen[l] = static_cast<int>(wanted[l] - start) + (result == nullptr ? 0 : lanes);
    if (result != nullptr) {
      vector = b.CreateShuffleVector(result, vector, chosen);
      for (std::size_t l = 0; l < wanted.size(); ++l)
        if (chosen[l] >= 0) chosen[l] = static_cast<int>(l);
    }
    result = vector;
    found = std::move(chosen);
  }
  if (starts.size() == 1) result = b.CreateShuffleVector(result, found);
  return mask == nullptr ? result : b.CreateSelect(widen(mask, lanes), result, zero(dtype, lanes));
}

Value* Code::combine_halves(ir::ScalarOp operation, DType dtype, Value* vector) {
  for (int lanes = lanes_in(vector); lanes > 1; lanes /= 2) {
    std::vector<int> low, high;
    for (int l = 0; l < lanes / 2; ++l) {
      low.push_back(l);
      high.push_back(l + lanes / 2);
    }
    Value* a = lanes == 2 ? b.CreateExtractElement(vector, std::uint64_t{0}) : b.CreateShuffleVector(vector, low);
    Value* c = lanes == 2 ? b.CreateExtractElement(vector, std::uint64_t{1}) : b.CreateShuffleVector(vector, high);
    vector = op(operation, dtype, dtype, {a, c});
  }
  return vector;
}

// Where all of them come from one side of a select (of what a tail has changed, say), the other side is not waited for.
Value* Code::lanes_from(Value* vector, int first, int count) {
  auto* select = llvm::dyn_cast<llvm::SelectInst>(vector);
  if (const auto* mask = select == nullptr ? nullptr : llvm::dyn_cast<llvm::Constant>(select->getCondition())) {
    int num_true = 0, num_false = 0;
    for (int l = first; l < first + count; ++l) {
      const llvm::Constant* lane = mask->getAggregateElement(static_cast<unsigned>(l));
      num_true += lane != nullptr && lane->isOneValue();
      num_false += lane != nullptr && lane->isNullValue();
    }
    if (num_true == count) return lanes_from(select->getTrueValue(), first, count);
    if (num_false == count) return lanes_from(select->getFalseValue(), first, count);
  }
  std::vector<int> chosen;
  for (int l = 0; l < count; ++l) chosen.push_back(first + l);
  return b.CreateShuffleVector(vector, chosen);
}

// Few vectors are each halved alone down to the short ones that every target has, since moves between distant lanes take several times as
// long as those between near ones. While there are several, pairs of them become one in each round, which holds the lower and then the
// upper halves of both side by side; a vector that is left over is halved alone. The last vector is combined where it lies, each block of
// lanes with itself, halves exchanged.
Value* Code::combine_halves(ir::ScalarOp operation, DType dtype, Values vectors) {
  constexpr int short_bytes = 16;
  const int lanes = lanes_in(vectors[0]);
  int width = lanes;  // of one of the original vectors in those of this round
  const std::size_t wanted = vectors.size();
  // With more vectors than lanes some rounds are missing.
  HOTLOOP_CHECK(wanted <= static_cast<std::size_t>(lanes), "vectors to be combined");
  const int short_lanes = short_bytes / static_cast<int>(size_of(dtype));
  if (wanted <= static_cast<std::size_t>(short_lanes)) {
    for (; width > short_lanes; width /= 2)
      for (Value*& vector : vectors)
        vector =
            op(operation, dtype, dtype, {lanes_from(vector, 0, width / 2), lanes_from(vector, width / 2, width / 2)});
  }
  while (vectors.size() > 1) {
    Values next;
    for (std::size_t i = 0; i < vectors.size(); i += 2) {
      const bool paired = i + 1 < vectors.size();
      const int held_lanes = lanes_in(vectors[i]);
      std::vector<int> low, high;
      for (int at = 0; at < held_lanes * (paired ? 2 : 1); at += width) {
        for (int l = 0; l < width / 2; ++l) {
          low.push_back(at + l);
          high.push_back(at + width / 2 + l);
        }
      }
      Value* other = paired ? vectors[i + 1] : llvm::PoisonValue::get(vectors[i]->getType());
      if (paired && lanes_in(other) != held_lanes) {  // a single one in the round before: it has half as many lanes
        std::vector<int> all(static_cast<std::size_t>(held_lanes), -1);
        for (int l = 0; l < lanes_in(other); ++l) all[static_cast<std::size_t>(l)] = l;
        other = b.CreateShuffleVector(other, all);
      }
      next.push_back(
          op(operation, dtype, dtype,
             {b.CreateShuffleVector(vectors[i], other, low), b.CreateShuffleVector(vectors[i], other, high)}));
    }
    vectors = std::move(next);
    width /= 2;
  }
  Value* last = vectors[0];
  const int block = width;
  for (; width > 1; width /= 2) {
    std::vector<int> exchanged;
    for (int l = 0; l < lanes_in(last); ++l) exchanged.push_back(l ^ (width / 2));
    last = op(operation, dtype, dtype, {last, b.CreateShuffleVector(last, exchanged)});
  }
  std::vector<int> all(static_cast<std::size_t>(lanes), -1);  // nothing uses the other lanes
  for (std::size_t l = 0; l < wanted; ++l) all[l] = static_cast<int>(l) * block;
  return b.CreateShuffleVector(last, all);
}

}  // namespace hotloop::codegen
