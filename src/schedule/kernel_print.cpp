// Text of a Program: every field that changes what it computes or how it is compiled, in a fixed order.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/hash.h"
#include "schedule/kernel_ir.h"

namespace hotloop::kernel {
namespace {

constexpr std::size_t largest_printed_constant = 64;  // bytes; longer literals are identified by a hash

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string text_of_data(const Array& data) {
  if (!data.defined()) return "none";
  const auto* bytes = static_cast<const unsigned char*>(data.raw());
  if (data.bytes() <= largest_printed_constant) {
    std::string text;
    for (std::size_t i = 0; i < data.bytes(); ++i) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", bytes[i]);
      text += two;
    }
    return text;
  }
  return "hash " + hash128({reinterpret_cast<const char*>(bytes), data.bytes()});
}

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string run() {
    const Target& t = program_.target;
    line("program " + program_.name);
    line("target " + t.name + " dot " + std::to_string(t.dot_rows) + "x" + std::to_string(t.dot_vectors) +
         (t.has_fma ? " fma" : " no_fma") + " l1 " + std::to_string(t.l1_bytes) + " (" +
         std::to_string(t.l1_bytes_there) + " there, " + std::to_string(std::llround(t.l1_rate_there)) +
         " a cycle) l2 " + std::to_string(t.l2_bytes) + " (" + std::to_string(t.l2_bytes_there) + " there)");
    line("rows <= " + std::to_string(program_.max_rows) + ", shared " + std::to_string(program_.shared_bytes) +
         " bytes, worker " + std::to_string(program_.worker_bytes) + " bytes" +
         (program_.near_bytes > 0 ? ", near " + std::to_string(program_.near_bytes) + " bytes" : ""));
    if (program_.flushes_denormals) line("denormals are 0");
    for (std::size_t i = 0; i < program_.arguments.size(); ++i) {
      line("argument " + std::to_string(i) + ": " + program_.arguments[i].str());
    }
    for (std::size_t i = 0; i < program_.results.size(); ++i) {
      const int argument = program_.in_place.empty() ? -1 : program_.in_place[i];
      line("result " + std::to_string(i) + ": " + program_.results[i].str() +
           (argument < 0 ? "" : " in place of argument " + std::to_string(argument)));
    }
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) print_buffer(static_cast<int>(i));
    std::string vars = "vars";
    for (std::size_t i = 0; i < program_.vars.size(); ++i) vars += " " + var(static_cast<Var>(i));
    line(vars);
    print_block(program_.body);
    return std::move(text_);
  }

 private:
  void line(const std::string& s) { text_.append(2 * static_cast<std::size_t>(depth_), ' ').append(s).append("\n"); }

  std::string var(Var v) const {
    const bool known = v >= 0 && static_cast<std::size_t>(v) < program_.vars.size();
    return (known ? program_.vars[static_cast<std::size_t>(v)] : "?") + "." + std::to_string(v);
  }
  std::string buffer(int b) const {
    const bool known = b >= 0 && static_cast<std::size_t>(b) < program_.buffers.size();
    return (known ? program_.buffers[static_cast<std::size_t>(b)].name : "?") + "#" + std::to_string(b);
  }
  std::string affine(const Affine& a) const {
    std::string text;
    for (const Term& term : a.terms) {
      if (!text.empty()) text += " + ";
      if (term.coefficient != 1) text += std::to_string(term.coefficient) + "*";
      text += var(term.var);
    }
    if (a.constant != 0 || text.empty()) text += (text.empty() ? "" : " + ") + std::to_string(a.constant);
    return text;
  }
  std::string access(const Access& a) const {
    std::string text = buffer(a.buffer) + "[" + affine(a.index);
    for (const Indirect& i : a.indirect) text += " + " + std::to_string(i.stride) + "*%" + std::to_string(i.reg);
    return text + "]";
  }
  std::string extent(const Extent& e) const {
    return e.is_static() ? std::to_string(e.bound) : var(e.var) + "<=" + std::to_string(e.bound);
  }
  static std::string reg(int r) { return "%" + std::to_string(r); }

  void print_buffer(int index) {
    const Buffer& b = program_.buffers[static_cast<std::size_t>(index)];
    if (b.elements == 0 && (b.space == Space::Shared || b.space == Space::Worker)) return;  // nothing lies there
    std::string text =
        "buffer " + buffer(index) + ": " + std::string(name_of(b.dtype)) + " x " + std::to_string(b.elements);
    switch (b.space) {
      case Space::Argument: text += " argument " + std::to_string(b.index); break;
      case Space::Result: text += " result " + std::to_string(b.index); break;
      case Space::Shared: text += " shared +" + std::to_string(b.offset); break;
      case Space::Worker: text += " worker +" + std::to_string(b.offset); break;
      case Space::Constant: text += " constant " + text_of_data(b.data); break;
    }
    line(text);
  }

  void print_block(const Block& block) {
    ++depth_;
    for (const Stmt& stmt : block) {
      std::visit([this](const auto& node) { print_node(node); }, stmt.node);
    }
    --depth_;
  }
  void print_section(const std::string& title, const Block& block) {
    line(title);
    print_block(block);
  }

  void print_node(const Map& map) {
    std::string text = "map " + map.name + " (";
    for (std::size_t d = 0; d < map.dims.size(); ++d) {
      if (d != 0) text += ", ";
      if (static_cast<int>(d) == map.num_outer) text += "reduce ";
      if (static_cast<int>(d) == map.vector_dim) text += "vector ";
      text += var(map.dims[d].var) + " < " + extent(map.dims[d].extent);
    }
    text += ")";
    if (map.split) text += " split";
    line(text);
    ++depth_;
    for (std::size_t i = 0; i < map.instrs.size(); ++i) {
      if (static_cast<int>(i) == map.body_end) line("after reduction:");
      print_instr(map.instrs[i], static_cast<int>(i));
    }
    --depth_;
  }

  void print_instr(const Instr& in, int index) {
    const std::string type(name_of(in.dtype));
    switch (in.kind) {
      case Instr::Kind::Op: {
        std::string text = reg(index) + " = " + std::string(ir::name_of(in.op)) + " " + type;
        for (int i = 0; i < ir::num_operands(in.op); ++i) text += (i == 0 ? " " : ", ") + reg(in.args[i]);
        return line(text);
      }
      case Instr::Kind::Const: return line(reg(index) + " = const " + type + " " + hex(in.bits));
      case Instr::Kind::Index: return line(reg(index) + " = index " + type + " " + affine(in.access.index));
      case Instr::Kind::Load:
        return line(reg(index) + " = load " + type + " " + access(in.access) +
                    (in.args[0] >= 0 ? " if " + reg(in.args[0]) : ""));
      case Instr::Kind::Store:
        return line("store " + type + " " + access(in.access) + " = " + reg(in.args[0]) +
                    (in.args[1] >= 0 ? " if " + reg(in.args[1]) : ""));
      case Instr::Kind::Reduced:
        return line(reg(index) + " = reduced " + std::string(ir::name_of(in.op)) + " " + type + " " + reg(in.args[0]) +
                    (in.args[1] >= 0 ? ", " + reg(in.args[1]) : ""));
    }
  }

  void print_node(const Dot& dot) {
    line("dot " + dot.name + " " + std::string(name_of(dot.dtype)) +
         (dot.in_blocks ? " of pairs in blocks"
          : dot.pairs   ? " of pairs"
                        : "") +
         " m " + extent(dot.m) + ", n " + extent(dot.n));
    ++depth_;
    line("c = " + access(dot.c) + " m " + std::to_string(dot.c_m) + " n " + std::to_string(dot.c_n));
    if (dot.init) {
      line("init = " + access(*dot.init) + " m " + std::to_string(dot.init_m) + " n " + std::to_string(dot.init_n));
    }
    for (const DotSegment& s : dot.segments) {
      std::string text = "a = " + access(s.a) + " m " + std::to_string(s.a_m) + "; b = " + access(s.b);
      text += s.packed() ? " packed " + std::to_string(s.panel) : " n " + std::to_string(s.b_n);
      text += "; k (";
      for (std::size_t i = 0; i < s.k.size(); ++i) {
        text += (i == 0 ? "" : ", ") + extent(s.k[i].extent) + ": a " + std::to_string(s.k[i].a_stride) + " b " +
                std::to_string(s.k[i].b_stride);
      }
      line(text + ")");
    }
    --depth_;
  }

  void print_node(const Pack& pack) {
    line("pack " + std::string(name_of(pack.dtype)) + " " + buffer(pack.target) + " = " + access(pack.source) + " k " +
         std::to_string(pack.k) + " stride " + std::to_string(pack.k_stride) + ", n " + std::to_string(pack.n) +
         " stride " + std::to_string(pack.n_stride) + ", panels of " + std::to_string(pack.panel) +
         (pack.split ? " split" : ""));
  }

  void print_node(const For& loop) {
    line("for " + var(loop.counter) + " < " + extent(loop.trip) + (loop.reverse ? " reverse" : ""));
    if (!loop.test.empty() || loop.stop) {
      print_section("test" + (loop.stop ? " stop " + access(*loop.stop) : std::string()), loop.test);
      line("body");
    }
    print_block(loop.body);
  }

  void print_node(const Let& let) {
    line("let " + var(let.var) + " = " +
         (let.number ? affine(*let.number) : std::string(name_of(let.dtype)) + " " + access(let.source)) + " in [" +
         std::to_string(let.low) + ", " + std::to_string(let.high) + "]");
  }

  void print_node(const Grid& grid) {
    line("grid " + var(grid.block) + ", " + var(grid.row0) + ", " + var(grid.rows) + " of " + extent(grid.total) +
         " rows: tile " + std::to_string(grid.tile_rows) + ", blocks " + std::to_string(grid.num_blocks) + " x " +
         std::to_string(grid.tiles_per_block) +
         (grid.slots > 0 ? ", through " + std::to_string(grid.slots) + " slots" : ""));
    if (!grid.prologue.empty()) {
      print_section("prologue", grid.prologue);
      line("tile");
    }
    print_block(grid.body);
  }
  void print_node(const Single& single) { print_section("single", single.body); }
  void print_node(const Sections& all) {
    const bool rounds = all.num_rounds() > 1;
    line(std::string("sections") + (rounds ? " in chunks of " + std::to_string(all.chunk) + " of " +
                                                 std::to_string(all.trip) + (all.reverse ? " reverse" : "")
                                           : ""));
    ++depth_;
    for (const Section& section : all.sections)
      print_section("section" + (rounds ? " " + var(section.first) + ", " + var(section.steps) + " delay " +
                                              std::to_string(section.delay)
                                        : ""),
                    section.body);
    --depth_;
  }
  void print_node(const Barrier&) { line("barrier"); }

  const Program& program_;
  std::string text_;
  int depth_ = 0;
};

}  // namespace

std::string print(const Program& program) { return Printer(program).run(); }

}  // namespace hotloop::kernel
