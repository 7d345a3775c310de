// Code that moves elements between the lanes of vectors: gathers of few vectors, reductions over lanes.
#include <llvm/Analysis/VectorUtils.h>

#include <algorithm>
#include <sstream>

#include "backends/llvm/code.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

// How many lanes a mask of Code::tail_mask() leaves on, as it was asked for; null for other masks.
static Value* active_lanes(Code& code, Value* mask, int lanes) {
  const auto* compare = llvm::dyn_cast<llvm::ICmpInst>(mask);
  if (compare == nullptr || compare->getPredicate() != llvm::ICmpInst::ICMP_SLT || lanes_in(mask) != lanes)
    return nullptr;
  if (compare->getOperand(0) != code.lane_numbers(code.b.getInt32Ty(), lanes, 1)) return nullptr;
  return llvm::getSplatValue(compare->getOperand(1));
}

// A vector whose lane l is, as place(l) says, a lane of one of the parts.
template <class Place> static Value* picked(Code& code, const Code::Values& parts, const Place& place) {
  Value* result = parts[0];
  for (int i = 1; i < static_cast<int>(parts.size()); ++i) {
    std::vector<int> places;
    for (int l = 0; l < lanes_in(result); ++l) {
      const auto [from, lane] = place(l);
      places.push_back(from == i ? lanes_in(result) + lane : from > i ? -1 : i == 1 ? lane : l);
    }
    result = code.b.CreateShuffleVector(result, parts[static_cast<std::size_t>(i)], places);
  }
  return result;
}

Code::Values Code::woven(Values parts) {
  const auto n = static_cast<int>(parts.size()), lanes = lanes_in(parts[0]);
  // Halves are woven first, then pairs of what they give, where each shuffle takes all of two vectors.
  if (n % 2 == 0 && lanes % 2 == 0) {
    Values even, odd, all;
    for (int i = 0; i < n; ++i) (i % 2 == 0 ? even : odd).push_back(parts[static_cast<std::size_t>(i)]);
    if (n > 2) {
      even = woven(std::move(even));
      odd = woven(std::move(odd));
    }
    for (std::size_t i = 0; i < even.size(); ++i)
      for (int half = 0; half < 2; ++half) {
        std::vector<int> places;
        for (int l = 0; l < lanes; ++l) places.push_back((half * lanes + l) / 2 + l % 2 * lanes);
        all.push_back(b.CreateShuffleVector(even[i], odd[i], places));
      }
    return all;
  }
  Values all;
  for (int v = 0; v < n; ++v)
    all.push_back(picked(*this, parts, [&](int l) { return std::pair((v * lanes + l) % n, (v * lanes + l) / n); }));
  return all;
}

Code::Values Code::unwoven(Values parts) {
  const auto n = static_cast<int>(parts.size()), lanes = lanes_in(parts[0]);
  Values all(parts.size());
  if (n % 2 == 0 && lanes % 2 == 0) {
    for (int odd = 0; odd < 2; ++odd) {
      std::vector<int> places;
      for (int l = 0; l < lanes; ++l) places.push_back(2 * l + odd);
      Values half;
      for (std::size_t i = 0; i < parts.size(); i += 2)
        half.push_back(b.CreateShuffleVector(parts[i], parts[i + 1], places));
      if (n > 2) half = unwoven(std::move(half));
      for (std::size_t i = 0; i < half.size(); ++i) all[2 * i + static_cast<std::size_t>(odd)] = half[i];
    }
    return all;
  }
  for (int v = 0; v < n; ++v)
    all[static_cast<std::size_t>(v)] =
        picked(*this, parts, [&](int l) { return std::pair((l * n + v) / lanes, (l * n + v) % lanes); });
  return all;
}

// Elements at known places that a few vectors cover are moved within registers: a gather takes as long as a load for every lane. What is
// read lies between the first and the last of the elements.
Value* Code::gather_by_vectors(DType dtype, Value* pointer, Value* indices, Value* mask) {
  constexpr std::size_t most_vectors = 4;
  const int lanes = lanes_in(indices);
  const auto* places = llvm::dyn_cast<llvm::ConstantDataVector>(indices);
  const auto known = known_lanes(mask, lanes);
  Value* const active = known ? nullptr : active_lanes(*this, mask, lanes);
  const std::int64_t bytes = bytes_of(dtype);
  if (places == nullptr || (active != nullptr && !state_.loads_masked())) return nullptr;
  if ((!known && active == nullptr) || known == 0 || bytes < 4 || lanes * bytes < state_.register_bytes / 2)
    return nullptr;
  std::vector<std::int64_t> wanted;
  for (int l = 0; l < known.value_or(lanes); ++l)
    wanted.push_back(
        llvm::cast<llvm::ConstantInt>(places->getElementAsConstant(static_cast<unsigned>(l)))->getSExtValue());
  std::vector<std::int64_t> sorted = wanted;
  std::ranges::sort(sorted);
  const std::int64_t span = sorted.back() - sorted.front() + 1;
  Value* read = nullptr;  // of the span, if only some lanes are on
  if (active != nullptr) {
    const std::int64_t stride = wanted[1] - wanted[0];
    for (std::size_t l = 1; l < wanted.size(); ++l)
      if (stride < 1 || wanted[l] - wanted[l - 1] != stride) return nullptr;
    llvm::Type* const type = active->getType();
    Value* const on = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, active, llvm::ConstantInt::getSigned(type, lanes));
    read = b.CreateAdd(b.CreateMul(on, llvm::ConstantInt::getSigned(type, stride)),
                       llvm::ConstantInt::getSigned(type, 1 - stride));
  }
  const std::int64_t last = sorted.front() + std::max<std::int64_t>(span - lanes, 0);  // where the last vector begins
  std::vector<std::int64_t> starts;
  for (const std::int64_t place : sorted)
    if (starts.empty() || place >= starts.back() + lanes) starts.push_back(std::min(place, last));
  if (starts.size() > most_vectors) return nullptr;

  Value* result = nullptr;
  std::vector<int> found(static_cast<std::size_t>(lanes), -1);  // where each lane's element lies in `result`
  for (const std::int64_t start : starts) {
    Value* lanes_read = span < lanes ? tail_mask(lanes, i64(span)) : nullptr;
    if (read != nullptr)
      lanes_read =
          tail_mask(lanes, b.CreateSub(read, llvm::ConstantInt::getSigned(read->getType(), start - sorted.front())));
    Value* vector = load(dtype, offset(pointer, start * bytes), 1, lanes, lanes_read);
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

bool pays_to_transpose(DType dtype, std::int64_t stride, std::int64_t step, std::int64_t count) {
  constexpr std::int64_t few_apart = 4, most_stride = 4;  // up to this stride gather_by_vectors() takes as few loads
  return bytes_of(dtype) >= 4 && step == 1 && std::abs(stride) > most_stride && count >= lanes_of(dtype) / few_apart;
}

// Lines are read whole and their blocks of 128 bits turned, first each by itself, then among each other: four moves between registers for a
// vector of 16, where a gather takes a load for every lane.
Code::Values Code::load_transposed(DType dtype, Value* pointer, Value* stride, int rows, int count, Value* there) {
  constexpr int block_bytes = 16, blocks = kernel::vector_bytes / block_bytes;
  const int lanes = lanes_of(dtype), width = block_bytes / static_cast<int>(size_of(dtype));
  HOTLOOP_CHECK(rows <= lanes && count <= lanes && width >= 2, "a square of lanes");
  Value* const mask = count < lanes ? tail_mask(lanes, i64(count)) : nullptr;
  Values lines;
  for (int r = 0; r < lanes; ++r) {
    if (r > 0 && r < rows) {
      Value* to_next = stride;
      if (there != nullptr) to_next = b.CreateSelect(b.CreateICmpSLT(i64(r), there), stride, i64(0));
      pointer = offset(pointer, to_next, bytes_of(dtype));
    }
    lines.push_back(r < rows ? load(dtype, pointer, 1, lanes, mask) : zero(dtype, lanes));
  }
  // Pieces of `piece` elements of two vectors in turns, of the lower or the upper half of each block.
  const auto interleave = [&](Value* x, Value* y, int piece, bool upper) {
    std::vector<int> chosen;
    for (int block = 0; block < lanes; block += width) {
      for (int at = upper ? width / 2 : 0, end = at + width / 2; at < end; at += piece) {
        for (const int from : {0, lanes})
          for (int l = 0; l < piece; ++l) chosen.push_back(from + block + at + l);
      }
    }
    return b.CreateShuffleVector(x, y, chosen);
  };
  // Of `width` lines vector q has, in each block, the q-th elements of that block of all lines.
  Values turned(static_cast<std::size_t>(lanes));
  for (std::size_t g = 0; g < turned.size(); g += static_cast<std::size_t>(width)) {
    Value** line = &lines[g];
    Value** to = &turned[g];
    if (width == 2) {
      to[0] = interleave(line[0], line[1], 1, false);
      to[1] = interleave(line[0], line[1], 1, true);
      continue;
    }
    Value* low01 = interleave(line[0], line[1], 1, false);
    Value* high01 = interleave(line[0], line[1], 1, true);
    Value* low23 = interleave(line[2], line[3], 1, false);
    Value* high23 = interleave(line[2], line[3], 1, true);
    to[0] = interleave(low01, low23, 2, false);
    to[1] = interleave(low01, low23, 2, true);
    to[2] = interleave(high01, high23, 2, false);
    to[3] = interleave(high01, high23, 2, true);
  }
  // Two blocks of x, then two of y.
  const auto choose = [&](Value* x, Value* y, int first, int second) {
    std::vector<int> chosen;
    for (const int from : {0, lanes})
      for (const int block : {first, second})
        for (int l = 0; l < width; ++l) chosen.push_back(from + block * width + l);
    return b.CreateShuffleVector(x, y, chosen);
  };
  static_assert(blocks == 4);
  Values result(static_cast<std::size_t>(lanes));
  for (int q = 0; q < width; ++q) {
    const auto of_group = [&](int g) { return turned[static_cast<std::size_t>(g * width + q)]; };
    for (int half = 0; half < 2; ++half) {
      Value* left = choose(of_group(0), of_group(1), 2 * half, 2 * half + 1);
      Value* right = choose(of_group(2), of_group(3), 2 * half, 2 * half + 1);
      for (int p = 0; p < 2; ++p)
        result[static_cast<std::size_t>((2 * half + p) * width + q)] = choose(left, right, p, 2 + p);
    }
  }
  result.resize(static_cast<std::size_t>(count));
  return result;
}

// LLVM takes long for so many moves.
void Code::copy_transposed(DType dtype, Value* source, std::int64_t stride, int rows, int count, Value* target,
                           std::int64_t apart) {
  std::ostringstream key;
  key << "square " << name_of(dtype) << ' ' << rows << ' ' << count;
  llvm::Function*& function = state_.outlined[key.str()];
  if (function == nullptr) {
    llvm::Type *pointer = b.getPtrTy(), *integer = b.getInt64Ty();
    auto* type = llvm::FunctionType::get(b.getVoidTy(), {pointer, integer, pointer, integer}, false);
    function = state_.create_function("square", type, false);
    Code inner(state_, llvm::BasicBlock::Create(context(), "entry", function));
    Value* to = function->getArg(2);
    for (Value* vector : inner.load_transposed(dtype, function->getArg(0), function->getArg(1), rows, count)) {
      inner.store(dtype, vector, to, 1, lanes_of(dtype), nullptr);
      to = inner.offset(to, function->getArg(3), bytes_of(dtype));
    }
    inner.b.CreateRetVoid();
  }
  b.CreateCall(function, {source, i64(stride), target, i64(apart)});
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
