#include "backends/llvm/point_code.h"

#include <algorithm>

#include "backends/llvm/held_values.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

using kernel::Instr;
using Values = Code::Values;

PointCode::PointCode(Code& code, const MapNest& nest)
    : code_(code), nest_(nest), leaves_out_lanes_(std::ranges::any_of(nest.instrs, [](const Instr& it) {
        return (it.kind == Instr::Kind::Load && it.args[0] >= 0) || (it.kind == Instr::Kind::Store && it.args[1] >= 0);
      })) {}

Value* PointCode::square(int i) {
  Value*& memory = square_memory_[i];
  if (memory == nullptr) memory = squares_.allocate(nest_.instr(i).dtype);
  return memory;
}

void PointCode::uniform_instrs(Point& point) {
  for (int i = 0; i < nest_.body_end; ++i) {
    if (nest_.hoistable[static_cast<std::size_t>(i)]) instr(point, i, nest_.lanes);
  }
  hoist_random_keys(point);
}

void PointCode::row_instrs(Point& point) {
  for (int i = 0; i < nest_.body_end; ++i) {
    if (nest_.by_row[static_cast<std::size_t>(i)] && point.registers[static_cast<std::size_t>(i)] == nullptr)
      instr(point, i, nest_.lanes);
  }
}

void PointCode::move_square(const Point& start, int i, Value* active, std::int64_t columns) {
  const Instr& it = nest_.instr(i);
  const bool reads = it.kind == Instr::Kind::Load;
  const int predicate = reads ? it.args[0] : it.args[1];
  const Address at = address(start, i, nest_.lanes);
  Squares::Rows rows{at.pointer, at.stride, active};
  if (at.indices != nullptr || predicate >= 0) {
    rows.places = at.indices != nullptr ? at.indices : code_.lane_numbers(code_.b.getInt64Ty(), nest_.lanes, at.stride);
    rows.mask = mask_of(start, predicate, nest_.lanes, start.mask);
  }
  if (reads) return squares_.read(it.dtype, rows, columns, square(i));
  squares_.write(it.dtype, square(i), rows, columns);
}

void PointCode::instrs(Point& point, int begin, int end, int lanes) {
  for (int i = begin; i < end; ++i) {
    if (point.registers[static_cast<std::size_t>(i)] == nullptr) instr(point, i, lanes);
  }
}

Value* PointCode::operand(const Point& point, int reg, int lanes) {
  Value* value = point.registers[static_cast<std::size_t>(reg)];
  HOTLOOP_CHECK(value != nullptr, "an instruction of a Map uses a register that is not there");
  return code_.widen(value, lanes);
}

Value* PointCode::mask_of(const Point& point, int predicate, int lanes, Value* tail) {
  if (predicate < 0 || point.registers[static_cast<std::size_t>(predicate)] == code_.b.getTrue()) return tail;
  Value* condition = operand(point, predicate, lanes);
  return tail == nullptr ? condition : code_.b.CreateAnd(condition, tail);
}

void PointCode::instr(Point& point, int i, int lanes) {
  const Instr& it = nest_.instr(i);
  Value*& result = point.registers[static_cast<std::size_t>(i)];
  const bool uniform = lanes == 1 || nest_.uniform[static_cast<std::size_t>(i)];
  switch (it.kind) {
    case Instr::Kind::Const: result = code_.constant(it.dtype, it.bits); return;
    case Instr::Kind::Index: result = index(point, i, uniform ? 1 : lanes); return;
    case Instr::Kind::Load:
      if (!uniform && is_woven(point, i, lanes)) return load_woven(point, i, lanes);
      result = load(point, i, uniform ? 1 : lanes);
      return;
    case Instr::Kind::Store: {
      if (!is_woven(point, i, lanes))
        store(point, i, lanes);
      else if (nest_.woven[static_cast<std::size_t>(i)] == i)
        store_woven(point, i, lanes);
      result = llvm::PoisonValue::get(code_.b.getInt1Ty());
      return;
    }
    case Instr::Kind::Reduced: HOTLOOP_CHECK(false, "Reduced must directly follow the body"); return;
    case Instr::Kind::Op: break;
  }
  if (it.op == kernel::ScalarOp::Random) {
    result = random(point, i, uniform ? 1 : lanes);
    return;
  }
  Values args;
  for (int k = 0; k < 3 && it.args[k] >= 0; ++k) args.push_back(operand(point, it.args[k], uniform ? 1 : lanes));
  if (it.op == kernel::ScalarOp::Div && is_float(it.dtype) && !uniform &&
      (point.mask != nullptr || leaves_out_lanes_)) {
    result = code_.quotient_of_some_lanes(args[0], args[1]);
    return;
  }
  const int last = args.size() == 3 ? it.args[2] : args.size() == 2 ? it.args[1] : it.args[0];
  result = code_.op(it.op, it.dtype, nest_.instr(last).dtype, args);
}

Value* PointCode::index(const Point& point, int i, int lanes) {
  const Instr& it = nest_.instr(i);
  const IndexUse& use = nest_.uses[static_cast<std::size_t>(i)];
  const auto g = static_cast<std::size_t>(use.group);
  Value* first = code_.b.CreateAdd(point.indices[g], code_.i64(use.displacement));
  llvm::Type* element = code_.scalar_type(it.dtype);
  first = code_.b.CreateTrunc(first, element);
  if (lanes == 1) return first;
  const std::int64_t step = nest_.index_groups[g].coefficients[static_cast<std::size_t>(nest_.vector_dim)];
  return code_.b.CreateAdd(code_.widen(first, lanes), code_.lane_numbers(element, lanes, step));
}

PointCode::Address PointCode::address(const Point& point, int i, int lanes) {
  const Instr& it = nest_.instr(i);
  const IndexUse& use = nest_.uses[static_cast<std::size_t>(i)];
  if (in_square(point, i)) return {squares_.column(it.dtype, square(i), point.column), 1};
  const AccessGroup& group = nest_.groups[static_cast<std::size_t>(use.group)];
  const std::int64_t bytes = bytes_of(group.dtype);
  Address at{code_.offset(point.pointers[static_cast<std::size_t>(use.group)], use.displacement * bytes), 0};
  if (nest_.vector_dim >= 0) at.stride = group.coefficients[static_cast<std::size_t>(nest_.vector_dim)];
  if (lanes == 1) at.stride = 0;
  if (group.crossed) {
    std::vector<llvm::Constant*> elements;
    for (int l = 0; l < lanes; ++l) {
      const std::int64_t e = std::int64_t{point.vector} * lanes + l, n = group.crossed->extent;
      elements.push_back(llvm::ConstantInt::getSigned(code_.b.getInt64Ty(),
                                                      e / n * group.crossed->outer + e % n * group.crossed->inner));
    }
    at.indices = llvm::ConstantVector::get(elements);
    at.stride = 0;
  }
  for (const kernel::Indirect& term : it.access.indirect) {
    Value* reg = point.registers[static_cast<std::size_t>(term.reg)];
    llvm::Type* wide = lanes_in(reg) == 1 ? code_.b.getInt64Ty() : code_.type(DType::I64, lanes);
    reg = nest_.instr(term.reg).dtype == DType::U32 ? code_.b.CreateZExtOrTrunc(reg, wide)
                                                    : code_.b.CreateSExtOrTrunc(reg, wide);
    if (lanes_in(reg) == 1) {
      at.pointer = code_.offset(at.pointer, reg, term.stride * bytes);
      continue;
    }
    reg = code_.b.CreateMul(reg, code_.widen(code_.i64(term.stride), lanes));
    at.indices = at.indices == nullptr ? reg : code_.b.CreateAdd(at.indices, reg);
  }
  if (at.indices != nullptr && at.stride != 0) {
    at.indices = code_.b.CreateAdd(at.indices, code_.lane_numbers(code_.b.getInt64Ty(), lanes, at.stride));
  }
  return at;
}

Value* PointCode::load(const Point& point, int i, int lanes) {
  const Instr& it = nest_.instr(i);
  const Address at = address(point, i, lanes);
  if (lanes == 1) {
    Value* predicate = it.args[0] < 0 ? nullptr : operand(point, it.args[0], 1);
    return code_.load(it.dtype, at.pointer, 0, 1, predicate);
  }
  if (in_square(point, i)) return code_.load(it.dtype, at.pointer, 1, lanes, nullptr);  // 0 where a row is left out
  Value* mask = mask_of(point, it.args[0], lanes, tail_of(point, i));
  if (at.indices != nullptr) return code_.gather(it.dtype, at.pointer, at.indices, mask);
  if (at.stride == 0 && mask != nullptr && lanes_in(mask) > 1) {  // one address, read if any lane wants it
    Value* number = code_.load(it.dtype, at.pointer, 0, lanes, code_.b.CreateOrReduce(mask));
    return code_.b.CreateSelect(mask, number, code_.zero(it.dtype, lanes));
  }
  // What is held is known by its pointer.
  const bool strays =
      nest_.strays[static_cast<std::size_t>(i)] && code_.held == nullptr && at.stride == 1 && mask != nullptr;
  Value* pointer = strays ? code_.near_if_off(at.pointer, mask) : at.pointer;
  Value* numbers = code_.load(it.dtype, pointer, at.stride, lanes, mask);
  // What is held instead has numbers in all lanes; behind a tail nobody asks for them.
  const bool may_be_held = it.args[0] >= 0 && mask != nullptr && code_.held != nullptr;
  return may_be_held ? code_.b.CreateSelect(mask, numbers, code_.zero(it.dtype, lanes)) : numbers;
}

void PointCode::store(const Point& point, int i, int lanes) {
  const Instr& it = nest_.instr(i);
  Value* value = operand(point, it.args[0], lanes);
  const Address at = address(point, i, lanes);
  Value* tail = tail_of(point, i);
  Value* mask = in_square(point, i) ? nullptr : mask_of(point, it.args[1], lanes, tail);
  const bool whole = mask != nullptr && tail == nullptr && lanes > 1 && at.indices == nullptr && at.stride == 1;
  if (whole && code_.held == nullptr && nest_.blends[static_cast<std::size_t>(i)]) {
    Value* old = code_.load(it.dtype, at.pointer, 1, lanes, nullptr);
    value = code_.b.CreateSelect(code_.widen(mask, lanes), value, old);
    mask = nullptr;
  }
  if (code_.held != nullptr) code_.held->writes(it.access.buffer);
  if (at.indices != nullptr) return code_.scatter(it.dtype, value, at.pointer, at.indices, mask);
  code_.store(it.dtype, value, at.pointer, at.stride, lanes, mask);
}

std::vector<int> PointCode::woven_with(int one) const {
  std::vector<int> members;
  for (int i = 0; i < static_cast<int>(nest_.woven.size()); ++i)
    if (nest_.woven[static_cast<std::size_t>(i)] == one) members.push_back(i);
  std::ranges::sort(members, {}, [&](int i) { return nest_.uses[static_cast<std::size_t>(i)].displacement; });
  return members;
}

void PointCode::load_woven(Point& point, int i, int lanes) {
  const std::vector<int> members = woven_with(nest_.woven[static_cast<std::size_t>(i)]);
  const DType dtype = nest_.instr(i).dtype;
  Value* pointer = address(point, members.front(), lanes).pointer;
  Values parts;
  for (std::size_t k = 0; k < members.size(); ++k) {
    parts.push_back(code_.load(dtype, pointer, 1, lanes, nullptr));
    pointer = code_.offset(pointer, lanes * bytes_of(dtype));
  }
  parts = code_.unwoven(std::move(parts));
  for (std::size_t k = 0; k < members.size(); ++k) point.registers[static_cast<std::size_t>(members[k])] = parts[k];
}

void PointCode::store_woven(const Point& point, int last, int lanes) {
  const std::vector<int> members = woven_with(last);
  const DType dtype = nest_.instr(last).dtype;
  Values parts;
  for (const int i : members) parts.push_back(operand(point, nest_.instr(i).args[0], lanes));
  Value* pointer = address(point, members.front(), lanes).pointer;
  for (Value* part : code_.woven(std::move(parts))) {
    code_.store(dtype, part, pointer, 1, lanes, nullptr);
    pointer = code_.offset(pointer, lanes * bytes_of(dtype));
  }
}

}  // namespace hotloop::codegen
