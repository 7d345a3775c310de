// What printers of kernel IR in languages of the C family share: lines, names, literals, expressions, the instructions of a Map.
#pragma once

#include <cstdint>
#include <string>

#include "backends/render/dialect.h"
#include "schedule/kernel_ir.h"

namespace hotloop::render {

class CodeWriter {
 protected:
  CodeWriter(const kernel::Program& program, const Dialect& dialect) : p_(program), d_(dialect) {}

  // Lines.
  void line(const std::string& s) { out_.append(2 * static_cast<std::size_t>(depth_), ' ').append(s).append("\n"); }
  void open(const std::string& s) {
    line(s.empty() ? "{" : s + " {");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  void open_else() {
    --depth_;
    line("} else {");
    ++depth_;
  }
  void open_loop(const std::string& counter, const std::string& end, const std::string& begin = "0",
                 const std::string& step = "1");

  // Names.
  std::string index_type() const { return std::string(d_.index_type); }
  std::string type(DType dtype) const { return std::string(d_.types[static_cast<std::size_t>(dtype)]); }
  std::string memory_type(DType dtype) const { return std::string(d_.memory_type(dtype)); }
  const kernel::Buffer& buffer(int b) const { return p_.buffers[static_cast<std::size_t>(b)]; }
  static std::string var(kernel::Var v) { return "v" + std::to_string(v); }
  static std::string reg(int r) { return "r" + std::to_string(r); }
  static std::string name(int b) { return "b" + std::to_string(b); }
  // A name that users give, for a comment or a string: nothing of it ends a line or a quotation.
  static std::string harmless(std::string text);
  static std::string comment(const std::string& text) { return "// " + harmless(text); }
  static std::string extent(const kernel::Extent& e);
  static std::string scaled(std::int64_t factor, const std::string& what);
  static std::string affine(const kernel::Affine& a);
  std::string element(const kernel::Access& access) const;
  // Of what a pointer into the buffer points to.
  std::string element_type(int b) const;
  // Pointer to the first element of an access.
  std::string pointer(const kernel::Access& access) const;

  // Values.
  // The bit pattern of an element of a constant.
  static std::uint64_t bits_of(const kernel::Buffer& constant, std::int64_t element);
  std::string literal(DType dtype, std::uint64_t bits) const;
  // The neutral value that a reduction starts from.
  std::string identity(kernel::ScalarOp op, DType dtype) const;
  // `dtype` is that of the operands.
  std::string expression(kernel::ScalarOp op, DType dtype, const std::string& a, const std::string& b = "",
                         const std::string& c = "") const;
  // a * b + c, rounded once where the target has it.
  std::string fused(DType dtype, const std::string& a, const std::string& b, const std::string& c) const;
  // What a step of a Dot adds to `sum`, of factors x and y.
  std::string product(const kernel::Dot& dot, const std::string& x, const std::string& y, const std::string& sum) const;
  // `slot` with what the body register of a Reduced added.
  std::string accumulated(const kernel::Instr& reduced, const std::string& slot) const;

  // The pointer to the memory of a buffer that is no constant.
  void render_buffer(int b);
  void render_buffer_at(int b, const std::string& address);
  // `hidden`: is added to each index that is a value.
  void render_instr(const kernel::Map& map, int i, const std::string& hidden = "");
  // "if (...) " in front of a store that has a condition.
  static std::string store_condition(const kernel::Instr& store) {
    return store.args[1] >= 0 ? "if (" + reg(store.args[1]) + ") " : "";
  }

  const kernel::Program& p_;
  const Dialect& d_;
  std::string out_;
  int depth_ = 0;

 private:
  std::string operation(const kernel::Map& map, const kernel::Instr& in) const;
  static bool is_condition_as_place(const kernel::Map& map, const kernel::Instr& in);
  bool is_fma(const kernel::Map& map, int reg) const;
};

// `text` with each `what` replaced.
std::string replaced(std::string text, std::string_view what, std::string_view by);

}  // namespace hotloop::render
