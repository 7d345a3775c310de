#include "backends/render/code_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "backends/render/renderer.h"
#include "core/print_number.h"
#include "hotloop/error.h"
#include "schedule/footprint.h"

namespace hotloop::render {

using namespace kernel;

std::string number(std::int64_t value) {
  // The lowest 64-bit number has no literal.
  if (value == INT64_MIN) return "(-INT64_C(9223372036854775807) - 1)";
  const bool wide = value > INT32_MAX || value < INT32_MIN;
  return wide ? "INT64_C(" + std::to_string(value) + ")" : std::to_string(value);
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

namespace {

std::uint64_t bits_of(const Array& data, std::int64_t element) {
  const std::size_t size = size_of(data.dtype());
  std::uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(data.raw()) + static_cast<std::size_t>(element) * size, size);
  return bits;
}

double float_of(DType dtype, std::uint64_t bits) {
  return dtype == DType::F32 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                             : std::bit_cast<double>(bits);
}

std::string literal_of(const Dialect& d, DType dtype, std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  switch (dtype) {
    case DType::Bool: return bits != 0 ? "1" : "0";
    case DType::I32: return "(int32_t)" + std::to_string(std::bit_cast<std::int32_t>(low));
    case DType::U32: return std::to_string(low) + "u";
    case DType::I64: return "(" + std::string(d.memory_type(dtype)) + ")" + number(std::bit_cast<std::int64_t>(bits));
    case DType::F32:
    case DType::F64: break;
  }
  const double value = float_of(dtype, bits);
  const bool f32 = dtype == DType::F32;
  if (std::isfinite(value)) return print_hex(value) + (f32 ? std::string(d.float_suffix) : "");
  return f32 ? "hl_bitcast_u32_f32(" + std::to_string(low) + "u)"
             : "hl_bitcast_i64_f64(" + number(std::bit_cast<std::int64_t>(bits)) + ")";
}

}  // namespace

std::string static_literal(const Dialect& dialect, const Array& data, std::int64_t element) {
  const DType dtype = data.dtype();
  const std::uint64_t bits = bits_of(data, element);
  const double value = is_float(dtype) ? float_of(dtype, bits) : 0;
  if (std::isfinite(value)) return literal_of(dialect, dtype, bits);
  const std::string suffix = dtype == DType::F32 ? "f" : "", sign = std::signbit(value) ? "-" : "";
  return sign + (std::isnan(value) ? "__builtin_nan" + suffix + "(\"\")" : "__builtin_inf" + suffix + "()");
}

void CodeWriter::open_loop(const std::string& counter, const std::string& end, const std::string& begin,
                           const std::string& step) {
  const std::string advance = step == "1" ? "++" + counter : counter + " += " + step;
  open("for (" + index_type() + " " + counter + " = " + begin + "; " + counter + " < " + end + "; " + advance + ")");
}

std::string CodeWriter::extent(const Extent& e) { return e.is_static() ? number(e.bound) : var(e.var); }

std::string CodeWriter::scaled(std::int64_t factor, const std::string& what) {
  return factor == 1 ? what : number(factor) + " * " + what;
}

std::string CodeWriter::affine(const Affine& a) {
  std::string text;
  for (const Term& t : a.terms) text += (text.empty() ? "" : " + ") + scaled(t.coefficient, var(t.var));
  if (a.constant != 0 || text.empty()) text += (text.empty() ? "" : " + ") + number(a.constant);
  return text;
}

std::string CodeWriter::element(const Access& access) const {
  std::string index = affine(access.index);
  for (const Indirect& i : access.indirect) {
    index += " + " + scaled(i.stride, "(" + index_type() + ")" + reg(i.reg));
  }
  return name(access.buffer) + "[" + index + "]";
}

std::string CodeWriter::element_type(int b) const {
  const Buffer& buf = buffer(b);
  // A compiler may take numbers of different types for different memory; those of one byte it may not.
  const auto changes_type = [&](const Buffer& other) {
    return other.dtype != buf.dtype && other.dtype != DType::Bool && lie_together(buf, other);
  };
  const std::string_view any = d_.shared_types[static_cast<std::size_t>(buf.dtype)];
  return any.empty() || std::ranges::none_of(p_.buffers, changes_type) ? memory_type(buf.dtype) : std::string(any);
}

std::string CodeWriter::pointer(const Access& access) const {
  return name(access.buffer) + " + " + affine(access.index);
}

std::uint64_t CodeWriter::bits_of(const Buffer& constant, std::int64_t element) {
  return render::bits_of(constant.data, element);
}

std::string CodeWriter::literal(DType dtype, std::uint64_t bits) const { return literal_of(d_, dtype, bits); }

std::string CodeWriter::identity(ScalarOp op, DType dtype) const {
  const auto float_bits = [&](double value) {
    return dtype == DType::F32 ? std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(value))}
                               : std::bit_cast<std::uint64_t>(value);
  };
  const bool floats = is_float(dtype);
  switch (op) {
    case ScalarOp::Add:
    case ScalarOp::Or: return literal(dtype, 0);
    case ScalarOp::Mul: return literal(dtype, floats ? float_bits(1) : 1);
    case ScalarOp::And: return dtype == DType::Bool ? "1" : "(" + type(dtype) + ")-1";
    case ScalarOp::Max:
      if (floats) return literal(dtype, float_bits(-INFINITY));
      return dtype == DType::U32 ? "0u" : dtype == DType::I32 ? "INT32_MIN" : "INT64_MIN";
    case ScalarOp::Min:
      if (floats) return literal(dtype, float_bits(INFINITY));
      return dtype == DType::U32 ? "UINT32_MAX" : dtype == DType::I32 ? "INT32_MAX" : "INT64_MAX";
    default: throw InternalError(__FILE__, __LINE__, "no reduction by " + std::string(ir::name_of(op)));
  }
}

std::string CodeWriter::expression(ScalarOp op, DType dtype, const std::string& a, const std::string& b,
                                   const std::string& c) const {
  const Spelling& s = d_.spelling(op);
  const std::string_view pattern = is_float(dtype) ? s.floats : dtype == DType::Bool ? s.bools : s.integers;
  HOTLOOP_CHECK(!pattern.empty(), std::string(d_.name) + " cannot spell " + std::string(ir::name_of(op)) + " of " +
                                      std::string(name_of(dtype)));
  std::string text = replaced(std::string(pattern), "$D", name_of(dtype));
  text = replaced(replaced(text, "$T", type(dtype)), "$a", a);
  return replaced(replaced(text, "$b", b), "$c", c);
}

std::string CodeWriter::fused(DType dtype, const std::string& a, const std::string& b, const std::string& c) const {
  return p_.target.has_fma ? expression(ScalarOp::Fma, dtype, a, b, c) : a + " * " + b + " + " + c;
}

std::string CodeWriter::product(const Dot& dot, const std::string& x, const std::string& y,
                                const std::string& sum) const {
  if (!dot.pairs) return fused(dot.dtype, x, y, sum);
  HOTLOOP_CHECK(!dot.in_blocks, "pairs in blocks are for the llvm backend");
  const auto half = [](const std::string& pair, bool upper) {
    return "hl_bitcast_u32_f32(" + pair + (upper ? " & 0xffff0000u)" : " << 16)");
  };
  return fused(dot.dtype, half(x, false), half(y, false),
               "(" + fused(dot.dtype, half(x, true), half(y, true), sum) + ")");
}

std::string CodeWriter::accumulated(const Instr& reduced, const std::string& slot) const {
  return reduced.op == ScalarOp::Fma ? fused(reduced.dtype, reg(reduced.args[0]), reg(reduced.args[1]), slot)
                                     : expression(reduced.op, reduced.dtype, slot, reg(reduced.args[0]));
}

void CodeWriter::render_buffer(int b) {
  const Buffer& buf = buffer(b);
  std::string_view where;
  switch (buf.space) {
    case Space::Argument: where = d_.argument; break;
    case Space::Result: where = d_.result; break;
    case Space::Shared: where = d_.shared; break;
    case Space::Worker: where = d_.scratch; break;
    case Space::Constant: return;
  }
  const std::string address =
      replaced(replaced(std::string(where), "$i", std::to_string(buf.index)), "$o", std::to_string(buf.offset));
  render_buffer_at(b, address);
}

std::string CodeWriter::harmless(std::string text) {
  for (char& c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < ' ' || code == 0x7f) c = ' ';
    if (c == '\\') c = '/';  // would join the next line
    if (c == '"') c = '\'';
  }
  return text;
}

void CodeWriter::render_buffer_at(int b, const std::string& address) {
  const Buffer& buf = buffer(b);
  const std::string to = (buf.space == Space::Argument ? "const " : "") + element_type(b) + "*";
  line(to + " const " + name(b) + " = (" + to + ")" + address + ";  " + comment(buf.name));
}

void CodeWriter::render_instr(const Map& map, int i, const std::string& hidden) {
  const Instr& in = map.instrs[static_cast<std::size_t>(i)];
  const auto set = [&](const std::string& value) {
    line("const " + type(in.dtype) + " " + reg(i) + " = " + value + ";");
  };
  switch (in.kind) {
    case Instr::Kind::Op:
      if (d_.hide.empty() || !is_condition_as_place(map, in)) return set(operation(map, in));
      line(type(in.dtype) + " " + reg(i) + " = " + operation(map, in) + ";");
      return line(replaced(std::string(d_.hide), "$r", reg(i)));
    case Instr::Kind::Const: return set(literal(in.dtype, in.bits));
    case Instr::Kind::Index: return set("(" + type(in.dtype) + ")(" + affine(in.access.index) + hidden + ")");
    case Instr::Kind::Reduced: return set("a" + std::to_string(i));
    case Instr::Kind::Load:
      return set((in.args[0] >= 0 ? reg(in.args[0]) + " ? " + element(in.access) + " : 0" : element(in.access)));
    case Instr::Kind::Store: return line(store_condition(in) + element(in.access) + " = " + reg(in.args[0]) + ";");
  }
}

std::string CodeWriter::operation(const Map& map, const Instr& in) const {
  const auto arg = [&](int k) { return in.args[k] >= 0 ? reg(in.args[k]) : std::string(); };
  const DType from = in.args[0] >= 0 ? map.instrs[static_cast<std::size_t>(in.args[0])].dtype : in.dtype;
  if (in.op == ScalarOp::Select) return expression(in.op, in.dtype, arg(0), arg(1), arg(2));
  if (in.op == ScalarOp::Bitcast) {
    if (from == in.dtype) return arg(0);
    return "hl_bitcast_" + std::string(name_of(from)) + "_" + std::string(name_of(in.dtype)) + "(" + arg(0) + ")";
  }
  if (in.op == ScalarOp::Cast) {
    if (is_float(from) && is_integer(in.dtype)) {
      return "hl_cast_" + std::string(name_of(from)) + "_" + std::string(name_of(in.dtype)) + "(" + arg(0) + ")";
    }
    return in.dtype == DType::Bool ? arg(0) + " != 0" : "(" + type(in.dtype) + ")" + arg(0);
  }
  if (in.op == ScalarOp::Neg && is_float(from) && is_fma(map, in.args[0])) {
    // gcc makes one instruction of -(a * b + c), -a * b - c, whose zero is 0 where this one's is -0.
    const bool f32 = from == DType::F32;
    const std::string bits = f32 ? "u32" : "i64", name(name_of(from)), sign = f32 ? "0x80000000u" : "INT64_MIN";
    return "hl_bitcast_" + bits + "_" + name + "(hl_bitcast_" + name + "_" + bits + "(" + arg(0) + ") ^ " + sign + ")";
  }
  return in.op == ScalarOp::Fma ? fused(from, arg(0), arg(1), arg(2)) : expression(in.op, from, arg(0), arg(1), arg(2));
}

// A number that says whether a condition holds, where a map looks something up. gcc 12 vectorises a gather at such places by the mask of the
// comparison, which is -1 or 0, in place of the number.
bool CodeWriter::is_condition_as_place(const Map& map, const Instr& in) {
  const auto looks_up = [](const Instr& other) { return !other.access.indirect.empty(); };
  if (!is_integer(in.dtype) || std::ranges::none_of(map.instrs, looks_up)) return false;
  const auto arg = [&](int k) -> const Instr& { return map.instrs[static_cast<std::size_t>(in.args[k])]; };
  if (in.op == ScalarOp::Cast) return arg(0).dtype == DType::Bool;
  return in.op == ScalarOp::Select && arg(1).kind == Instr::Kind::Const && arg(2).kind == Instr::Kind::Const;
}

bool CodeWriter::is_fma(const Map& map, int reg) const {
  const Instr* in = &map.instrs[static_cast<std::size_t>(reg)];
  while (in->kind == Instr::Kind::Op && in->op == ScalarOp::Copy)
    in = &map.instrs[static_cast<std::size_t>(in->args[0])];
  return p_.target.has_fma && in->kind == Instr::Kind::Op && in->op == ScalarOp::Fma;
}

}  // namespace hotloop::render
