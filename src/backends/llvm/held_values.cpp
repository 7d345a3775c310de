#include "backends/llvm/held_values.h"

#include <algorithm>

#include "hotloop/error.h"

namespace hotloop::codegen {

using Values = Code::Values;

namespace {

std::int64_t memory_bytes(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

}  // namespace

HeldValues::HeldValues(const llvm::Module& module, const kernel::Program& program)
    : layout_(module.getDataLayout()),
      program_(program),
      ranges_(program.buffers.size(), Range{{nullptr, 0}, 0, false}) {}

void HeldValues::lies_at(int index, const Value* base) {
  const kernel::Buffer& buffer = program_.buffers[static_cast<std::size_t>(index)];
  const bool in_arena = buffer.space == kernel::Space::Shared || buffer.space == kernel::Space::Worker;
  Range& range = ranges_[static_cast<std::size_t>(index)];
  range = {place_of(base), buffer.elements * memory_bytes(buffer.dtype), in_arena};
  base_values_.emplace(range.place.base, -1);
}

Value* HeldValues::moving(int buffer, const std::vector<kernel::Term>& terms, const std::function<Value*()>& compute) {
  Moving key{buffer, {}};
  for (const kernel::Term& term : terms) key.second.emplace_back(term.var, term.coefficient);
  Value*& known = moving_[key];
  if (known != nullptr) return known;
  known = compute();
  base_values_.emplace(place_of(known).base, buffer);
  return known;
}

void HeldValues::rebinds(kernel::Var var) {
  std::erase_if(moving_, [&](const auto& known) {
    const auto& terms = known.first.second;
    return std::any_of(terms.begin(), terms.end(), [&](const auto& term) { return term.first == var; });
  });
}

void HeldValues::clear() {
  entries_.clear();
  moving_.clear();
}

HeldValues::Place HeldValues::place_of(const Value* pointer) const {
  llvm::APInt offset(64, 0);
  const Value* base = pointer->stripAndAccumulateConstantOffsets(layout_, offset, /*AllowNonInbounds=*/true);
  return {base, offset.getSExtValue()};
}

bool HeldValues::is_known(const Place& place) const { return base_values_.contains(place.base); }

HeldValues::Range HeldValues::reach(const Place& place, std::int64_t bytes) const {
  const auto base = base_values_.find(place.base);
  if (base == base_values_.end() || base->second < 0) return {place, bytes, false};
  return ranges_[static_cast<std::size_t>(base->second)];
}

void HeldValues::forget(const Place& place, std::int64_t bytes) {
  const auto meet = [](const Place& a, std::int64_t a_bytes, const Place& b, std::int64_t b_bytes) {
    return a.base == b.base && a.at < b.at + b_bytes && b.at < a.at + a_bytes;
  };
  const Range written = reach(place, bytes);
  std::erase_if(entries_, [&](const Entry& e) {
    if (e.place.base == place.base) return meet(e.place, e.bytes, place, bytes);
    const Range known = reach(e.place, e.bytes);
    return meet(known.place, known.bytes, written.place, written.bytes);
  });
}

void HeldValues::forget(int buffer) {
  const Range& range = ranges_[static_cast<std::size_t>(buffer)];
  forget(range.place, range.bytes);
}

Value* HeldValues::find(Code& code, DType dtype, Value* pointer, std::int64_t stride, int lanes, Value* mask) {
  const bool is_vector = lanes > 1 && stride != 0;
  if (is_vector && stride != 1) return nullptr;
  if (!is_vector && mask != nullptr) return nullptr;
  const auto active = is_vector ? known_lanes(mask, lanes) : 1;
  if (!active) return nullptr;
  const Place place = place_of(pointer);
  if (!is_vector) return number_at(code, dtype, place, lanes);
  const std::int64_t bytes = *active * memory_bytes(dtype);
  for (const Entry& e : entries_)
    if (e.place.base == place.base && e.dtype == dtype && e.place.at == place.at && e.bytes >= bytes &&
        lanes_in(e.value) == lanes)
      return e.value;
  // What was stored number by number: a processor does not pass several stores on to one load, which would wait for all of them to be in the cache.
  constexpr std::int64_t few_numbers = 8;
  if (*active == 0 || *active > few_numbers || !is_known(place)) return nullptr;
  Values numbers;
  for (std::int64_t i = 0; i < *active; ++i) {
    numbers.push_back(number_at(code, dtype, {place.base, place.at + i * memory_bytes(dtype)}, 1));
    if (numbers.back() == nullptr) return nullptr;
  }
  Value* vector =
      llvm::Constant::getNullValue(llvm::FixedVectorType::get(numbers[0]->getType(), static_cast<unsigned>(lanes)));
  for (std::size_t i = 0; i < numbers.size(); ++i) vector = code.b.CreateInsertElement(vector, numbers[i], i);
  return vector;
}

Value* HeldValues::number_at(Code& code, DType dtype, const Place& place, int lanes) const {
  const std::int64_t bytes = memory_bytes(dtype);
  for (const Entry& e : entries_) {
    if (e.place.base != place.base || e.dtype != dtype) continue;
    const std::int64_t from = place.at - e.place.at;
    if (from < 0 || from + bytes > e.bytes || from % bytes != 0) continue;
    const auto lane = static_cast<int>(from / bytes);
    if (lanes_in(e.value) == 1) return code.widen(e.value, lanes);
    if (lanes == 1) return code.b.CreateExtractElement(e.value, static_cast<std::uint64_t>(lane));
    return code.b.CreateShuffleVector(e.value, std::vector<int>(static_cast<std::size_t>(lanes), lane));
  }
  return nullptr;
}

void HeldValues::keep_load(DType dtype, Value* pointer, Value* value) {
  const Place place = place_of(pointer);
  if (lanes_in(value) == 1 && is_known(place)) entries_.push_back({place, memory_bytes(dtype), dtype, value});
}

Value* HeldValues::mask_of_store(DType dtype, Value* pointer, int lanes, Value* mask) const {
  const auto active = known_lanes(mask, lanes);
  if (mask == nullptr || !active) return mask;
  const Range& range = ranges_[static_cast<std::size_t>(written_)];
  const Place place = place_of(pointer);
  if (!range.padded || place.base != range.place.base) return mask;
  const std::int64_t begin = place.at - range.place.at, size = memory_bytes(dtype);
  const std::int64_t room = (range.bytes + kernel::vector_bytes - 1) / kernel::vector_bytes * kernel::vector_bytes;
  return begin + *active * size == range.bytes && begin + lanes * size <= room ? nullptr : mask;
}

void HeldValues::keep_store(DType dtype, Value* pointer, Value* value, Value* mask) {
  const int lanes = lanes_in(value);
  const auto active = known_lanes(mask, lanes);
  const Place place = place_of(pointer);
  if (!active || !is_known(place)) return forget(written_);
  const std::int64_t bytes = *active * memory_bytes(dtype);
  forget(place, bytes);
  entries_.push_back({place, bytes, dtype, value});
}

void HeldValues::keep(int buffer, Value* value) {
  const Range& range = ranges_[static_cast<std::size_t>(buffer)];
  entries_.push_back({range.place, range.bytes, program_.buffers[static_cast<std::size_t>(buffer)].dtype, value});
}

Value* HeldValues::all_of(int buffer, int lanes) const {
  const Range& range = ranges_[static_cast<std::size_t>(buffer)];
  for (const Entry& e : entries_) {
    if (e.place.base != range.place.base || e.place.at != range.place.at || lanes_in(e.value) != lanes) continue;
    if (e.bytes >= range.bytes && e.dtype == program_.buffers[static_cast<std::size_t>(buffer)].dtype) return e.value;
  }
  return nullptr;
}

HeldValues::Knowledge HeldValues::knowledge() const { return {entries_, moving_}; }

void HeldValues::restore(const Knowledge& known) {
  entries_ = known.entries;
  moving_ = known.moving;
}

}  // namespace hotloop::codegen
