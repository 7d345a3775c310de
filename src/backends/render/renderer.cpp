#include "backends/render/renderer.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/render/code_writer.h"
#include "core/index.h"
#include "hotloop/error.h"
#include "schedule/accesses.h"
#include "schedule/parts.h"

namespace hotloop::render {

namespace {

using namespace kernel;

class Renderer : CodeWriter {
 public:
  Renderer(const Program& program, const Dialect& dialect) : CodeWriter(program, dialect) {}

  std::string run() {
    depth_ = 1;
    render_block(p_.body);
    const std::string body = std::exchange(out_, {});
    depth_ = 0;
    out_ = d_.prelude;
    line(comment(p_.name));
    const bool in_parts = !parts_.empty();
    if (in_parts) render_constants();
    out_ += parts_ + std::string(d_.kernel_open);
    ++depth_;
    if (!in_parts) render_constants();  // in the function, so that a file may hold several programs
    render_setup(in_parts);
    out_ += body;
    --depth_;
    line("}");
    return std::move(out_);
  }

 private:
  // A function of the file: the kernel or a part of it.
  struct Function {
    std::set<int> buffers;
    bool any_guarded = false;
  };

  // The memory and the number of rows, for the statements that the function has.
  void render_setup(bool in_parts) {
    for (const int b : function_.buffers) {
      if (buffer(b).space != Space::Constant)
        render_buffer(b);
      else if (in_parts)
        line("const " + memory_type(buffer(b).dtype) + "* const " + name(b) + " = " + shared_name(b) + ";");
    }
    line("const " + index_type() + " " + var(rows_var) + " = " + std::string(d_.rows) + ";");
    line("(void)" + var(rows_var) + ";");
    if (function_.any_guarded) line("volatile int32_t hidden = 0; const int32_t hidden_zero = hidden;");
  }

  // Memory.
  std::string shared_name(int b) const { return d_.kernel_name + "_" + name(b); }
  void render_constants() {
    for (std::size_t i = 0; i < p_.buffers.size(); ++i)
      if (p_.buffers[i].space == Space::Constant) render_constant(static_cast<int>(i));
  }
  void render_constant(int b) {
    const Buffer& buf = buffer(b);
    std::string text = std::string(d_.constant_data) + " " + memory_type(buf.dtype) + " " +
                       (parts_.empty() ? name(b) : shared_name(b)) + "[" +
                       std::to_string(std::max<std::int64_t>(buf.elements, 1)) + "] = {";
    for (std::int64_t i = 0; i < buf.elements; ++i)
      text += (i % 8 == 0 ? "\n  " : " ") + static_literal(d_, buf.data, i) + ",";
    line(text + (buf.elements == 0 ? "0};" : "};"));
  }

  // Statements.
  void render_block(const Block& block) {
    const std::size_t outside = scope_.size();
    for (const Part& part : parts_of(block)) {
      const auto some = std::span(block).subspan(part.begin, part.end - part.begin);
      if (part.own_function && !d_.part_open.empty())
        call_part(some);
      else
        render_in_line(some);
    }
    scope_.resize(outside);
  }

  void render_in_line(std::span<const Stmt> statements) {
    for (const Stmt& stmt : statements) {
      for_each_access(stmt, [&](const Use& use) { function_.buffers.insert(use.access->buffer); });
      std::visit([this](const auto& node) { render_node(node); }, stmt.node);
    }
  }

  // A function of its own, called here: it has the context and the variables in scope, and says whether it left early.
  void call_part(std::span<const Stmt> statements) {
    std::string text = std::exchange(out_, {});
    const Function caller = std::exchange(function_, {});
    const bool caller_is_part = std::exchange(is_part_, true);
    const int depth = std::exchange(depth_, 1);
    render_in_line(statements);
    const std::string body = std::exchange(out_, {}), part = d_.kernel_name + "_part" + std::to_string(num_parts_++);
    std::string signature = std::string(d_.context_type) + " " + std::string(d_.context),
                call = std::string(d_.context);
    for (const Var v : scope_) {
      signature += ", " + index_type() + " " + var(v);
      call += ", " + var(v);
    }
    depth_ = 0;
    open(std::string(d_.part_open) + part + "(" + signature + ")");
    render_setup(true);
    out_ += body;
    line("return false;");
    close();
    parts_ += std::exchange(out_, std::move(text));
    function_ = caller;
    is_part_ = caller_is_part;
    depth_ = depth;
    leave_if(part + "(" + call + ")");
  }

  void leave_if(std::string_view condition) {
    if (!condition.empty()) line("if (" + std::string(condition) + ") return" + (is_part_ ? " true" : "") + ";");
  }

  // gcc 12 makes groups of the loads of an unrolled loop. It gives one mask to all of a group, whatever their own conditions, and reads
  // elements that lie apart as halves of vectors, the last of them beyond the end of its array. Where loops stay loops, the loads of
  // different points make no group; those of one point that are guarded and lie side by side make one, and get each other's numbers, unless each point is
  // computed by itself.
  void keep_rolled(const Map& map) {
    if (has_guarded_loads(map) || has_strided_loads(map)) line(std::string(d_.rolled_loop));
  }
  void keep_apart(const Map& map) {
    const auto is_guarded = [&](const Instr& in) { return is_strided_load(map, in) && in.args[0] >= 0; };
    if (!d_.one_by_one.empty() && std::ranges::any_of(map.instrs, is_guarded)) line(std::string(d_.one_by_one));
  }
  // Whether neighbours along the vector dim lie apart.
  static bool is_strided_load(const Map& map, const Instr& in) {
    if (map.vector_dim < 0 || in.kind != Instr::Kind::Load) return false;
    return std::abs(in.access.index.coefficient(map.dims[static_cast<std::size_t>(map.vector_dim)].var)) > 1;
  }
  static bool has_strided_loads(const Map& map) {
    return std::ranges::any_of(map.instrs, [&](const Instr& in) { return is_strided_load(map, in); });
  }
  static bool has_guarded_loads(const Map& map) {
    return std::ranges::any_of(map.instrs,
                               [](const Instr& in) { return in.kind == Instr::Kind::Load && in.args[0] >= 0; });
  }

  void render_node(const Map& map) {
    function_.any_guarded = function_.any_guarded || has_guarded_loads(map);
    open("");
    line(comment("map " + map.name));
    const int num_dims = static_cast<int>(map.dims.size());
    const bool reduces = map.num_outer < num_dims;
    std::string begin = "0", end;
    if (map.split) {
      const std::string n = extent(map.dims[0].extent);
      line("const " + index_type() + " share = (" + n + " + " + std::string(d_.num_workers) + " - 1) / " +
           std::string(d_.num_workers) + ", first = " + std::string(d_.worker) + " * share;");
      line("const " + index_type() + " last = first + share < " + n + " ? first + share : " + n + ";");
      begin = "first";
      end = "last";
    }
    const auto open_dim = [&](int d) {
      const Dim& dim = map.dims[static_cast<std::size_t>(d)];
      if (d == map.vector_dim) line(std::string(d_.independent_loop));
      keep_rolled(map);
      if (d == 0 && map.split)
        open_loop(var(dim.var), end, begin);
      else
        open_loop(var(dim.var), extent(dim.extent));
    };
    // Points of a vectorised Map without a reduction are independent: the vector dim goes innermost.
    const bool inner_vector = !reduces && map.vector_dim >= 0;
    for (int d = 0; d < map.num_outer; ++d) {
      if (!(inner_vector && d == map.vector_dim)) open_dim(d);
    }
    if (inner_vector) open_dim(map.vector_dim);
    if (reduces)
      render_reductions(map);
    else
      keep_apart(map);
    for (int i = reduces ? map.body_end : 0; i < static_cast<int>(map.instrs.size()); ++i) render_instr(map, i);
    for (int d = 0; d < map.num_outer; ++d) close();
    close();
  }

  // The loops over the reduced dims, which leave each accumulator's value in a0, a1, ...
  void render_reductions(const Map& map) {
    const bool in_lanes = map.vector_dim >= map.num_outer;
    struct Accumulator {
      std::string name;
      const Instr* instr;
    };
    const std::string lanes = std::to_string(map.lanes());
    std::vector<Accumulator> accumulators;
    for (int i = map.body_end; i < static_cast<int>(map.instrs.size()); ++i) {
      const Instr& in = map.instrs[static_cast<std::size_t>(i)];
      if (in.kind != Instr::Kind::Reduced) break;
      accumulators.push_back({"a" + std::to_string(i), &in});
    }
    for (const Accumulator& a : accumulators) {
      const std::string start = identity(combiner(*a.instr), a.instr->dtype);
      if (!in_lanes) {
        line(type(a.instr->dtype) + " " + a.name + " = " + start + ";");
        continue;
      }
      line(type(a.instr->dtype) + " " + a.name + "_lanes[" + lanes + "];");
      line("for (int l = 0; l < " + lanes + "; ++l) " + a.name + "_lanes[l] = " + start + ";");
    }
    const int num_dims = static_cast<int>(map.dims.size());
    for (int d = map.num_outer; d < num_dims; ++d) {
      const Dim& dim = map.dims[static_cast<std::size_t>(d)];
      if (d != map.vector_dim) {
        keep_rolled(map);
        open_loop(var(dim.var), extent(dim.extent));
        continue;
      }
      const std::string n = extent(dim.extent);
      keep_rolled(map);
      open_loop("base", n, "0", lanes);
      line("const int count = " + n + " - base < " + lanes + " ? (int)(" + n + " - base) : " + lanes + ";");
      if (d + 1 == num_dims) line(std::string(d_.independent_loop));
      keep_rolled(map);
      open("for (int l = 0; l < count; ++l)");
      line("const " + index_type() + " " + var(dim.var) + " = base + l;");
    }
    keep_apart(map);
    for (int i = 0; i < map.body_end; ++i) render_instr(map, i);
    for (const Accumulator& a : accumulators) {
      const std::string slot = a.name + (in_lanes ? "_lanes[l]" : "");
      line(slot + " = " + accumulated(*a.instr, slot) + ";");
    }
    for (int d = map.num_outer; d < num_dims + (in_lanes ? 1 : 0); ++d) close();
    if (!in_lanes) return;
    for (const Accumulator& a : accumulators) {
      const std::string low = a.name + "_lanes[l]", high = a.name + "_lanes[l + h]";
      line("for (int h = " + std::to_string(map.lanes() / 2) + "; h > 0; h /= 2)");
      line("  for (int l = 0; l < h; ++l) " + low + " = " + expression(combiner(*a.instr), a.instr->dtype, low, high) +
           ";");
      line("const " + type(a.instr->dtype) + " " + a.name + " = " + a.name + "_lanes[0];");
    }
  }

  void render_instr(const Map& map, int i) {
    // gcc 12 makes a load whose mask it can compute a blend with all of the memory, that behind the last element too.
    CodeWriter::render_instr(map, i, has_guarded_loads(map) ? " + hidden_zero" : "");
  }

  void render_node(const Dot& dot) {
    const std::string t = type(dot.dtype), it = index_type();
    const std::int64_t lanes = lanes_of(dot.dtype), n = dot.n.bound,
                       panel = dot.panel() > 0 ? dot.panel() : p_.target.panel(dot.dtype);
    const std::int64_t width = std::min(panel, std::max<std::int64_t>(n, 1));
    open("");
    line(comment("dot " + dot.name));
    open_loop("m", extent(dot.m));
    open_loop("n0", number(n), "0", number(panel));
    const bool one_width = n % panel == 0 || n < panel;
    line("const " + it + " w = " +
         (one_width ? number(width)
                    : number(n) + " - n0 < " + number(panel) + " ? " + number(n) + " - n0 : " + number(panel)) +
         ";");
    line(t + " acc[" + number(width) + "];");
    if (dot.init) {
      line("const " + element_type(dot.init->buffer) + "* const init = " + pointer(*dot.init) + " + " +
           scaled(dot.init_m, "m") + " + " + scaled(dot.init_n, "n0") + ";");
      line("for (" + it + " j = 0; j < w; ++j) acc[j] = init[" + scaled(dot.init_n, "j") + "];");
    } else {
      line("for (" + it + " j = 0; j < w; ++j) acc[j] = 0;");
    }
    for (const DotSegment& s : dot.segments) render_segment(dot, s, lanes, panel);
    line(element_type(dot.c.buffer) + "* const c = " + pointer(dot.c) + " + " + scaled(dot.c_m, "m") + " + " +
         scaled(dot.c_n, "n0") + ";");
    line("for (" + it + " j = 0; j < w; ++j) c[" + scaled(dot.c_n, "j") + "] = acc[j];");
    close();
    close();
    close();
  }

  void render_segment(const Dot& dot, const DotSegment& s, std::int64_t lanes, std::int64_t panel) {
    const std::string it = index_type(), a_type = element_type(s.a.buffer), b_type = element_type(s.b.buffer);
    const std::int64_t depth = s.depth();
    open("");
    std::string a_index = "0", b_index = "0", row_number;
    line("const " + a_type + "* const a = " + pointer(s.a) + " + " + scaled(s.a_m, "m") + ";");
    if (s.packed()) {
      const std::int64_t padded = divided_up(dot.n.bound, lanes) * lanes;
      line("const " + b_type + "* const b = " + pointer(s.b) + " + n0 * " + number(depth) + ";");
      line("const " + it + " pw = " + number(padded) + " - n0 < " + number(panel) + " ? " + number(padded) +
           " - n0 : " + number(panel) + ";");
    } else {
      line("const " + b_type + "* const b = " + pointer(s.b) + " + " + scaled(s.b_n, "n0") + ";");
    }
    for (std::size_t i = 0; i < s.k.size(); ++i) {
      const std::string k = "k" + std::to_string(i);
      open_loop(k, extent(s.k[i].extent));
      a_index += " + " + scaled(s.k[i].a_stride, k);
      b_index += " + " + scaled(s.k[i].b_stride, k);
      row_number = row_number.empty() ? k : "(" + row_number + ") * " + number(s.k[i].extent.bound) + " + " + k;
    }
    if (s.packed()) b_index = row_number.empty() ? "0" : "(" + row_number + ") * pw";
    line("const " + type(factor_dtype(dot)) + " x = a[" + a_index + "];");
    line("const " + b_type + "* const row = b + " + b_index + ";");
    const std::string y = "row[" + (s.packed() ? "j" : scaled(s.b_n, "j")) + "]";
    const std::string sum = product(dot, "x", y, "acc[j]");
    line(std::string(d_.independent_loop));
    line("for (" + it + " j = 0; j < w; ++j) acc[j] = " + sum + ";");
    for (std::size_t i = 0; i < s.k.size(); ++i) close();
    close();
  }

  void render_node(const Pack& pack) {
    const std::int64_t lanes = lanes_of(pack.dtype), panel = pack.panel;
    const std::string padded = number(divided_up(pack.n, lanes) * lanes), columns = number(panel);
    open("");
    line("// pack");
    line("const " + element_type(pack.source.buffer) + "* const from = " + pointer(pack.source) + ";");
    if (pack.split)
      open_loop("n0", padded, std::string(d_.worker) + " * " + columns, std::string(d_.num_workers) + " * " + columns);
    else
      open_loop("n0", padded, "0", columns);
    line("const " + index_type() + " w = " + padded + " - n0 < " + columns + " ? " + padded + " - n0 : " + columns +
         ";");
    line(element_type(pack.target) + "* const to = " + name(pack.target) + " + n0 * " + number(pack.k) + ";");
    open_loop("k", number(pack.k));
    line("for (" + index_type() + " j = 0; j < w; ++j)");
    line("  to[k * w + j] = n0 + j < " + number(pack.n) + " ? from[" + scaled(pack.k_stride, "k") + " + " +
         scaled(pack.n_stride, "(n0 + j)") + "] : 0;");
    close();
    close();
    close();
  }

  void render_node(const For& loop) {
    const std::string counter = var(loop.counter), trip = extent(loop.trip);
    if (loop.reverse) {
      open("for (" + index_type() + " " + counter + " = " + trip + " - 1; " + counter + " >= 0; --" + counter + ")");
    } else {
      open_loop(counter, trip);
    }
    const std::size_t outside = scope_.size();
    scope_.push_back(loop.counter);
    leave_if(d_.cancelled);
    if (loop.stop) {
      open("");
      render_block(loop.test);
      close();
      line("if (" + element(*loop.stop) + ") break;");
    }
    render_block(loop.body);
    scope_.resize(outside);
    close();
  }

  void render_node(const Let& let) {
    const std::string v = var(let.var), low = number(let.low), high = number(let.high);
    line("const " + index_type() + " " + v + "_raw = (" + index_type() + ")" +
         (let.number ? affine(*let.number) : element(let.source)) + ";");
    line("const " + index_type() + " " + v + " = " + v + "_raw < " + low + " ? " + low + " : " + v + "_raw > " + high +
         " ? " + high + " : " + v + "_raw;");
    scope_.push_back(let.var);
  }

  void render_node(const Grid& grid) {
    const std::string block = var(grid.block), row0 = var(grid.row0), rows = var(grid.rows), total = extent(grid.total);
    const std::string per_block = number(grid.tiles_per_block), tile_rows = number(grid.tile_rows);
    open_loop(block, number(grid.num_blocks), std::string(d_.worker), std::string(d_.num_workers));
    leave_if(d_.cancelled);
    const std::size_t outside = scope_.size();
    scope_.push_back(grid.block);
    if (!grid.prologue.empty()) {
      open("");
      render_block(grid.prologue);
      close();
    }
    open_loop("tile", "(" + block + " + 1) * " + per_block, block + " * " + per_block);
    line("const " + index_type() + " " + row0 + " = tile * " + tile_rows + ";");
    line("if (" + row0 + " >= " + total + ") break;");
    line("const " + index_type() + " " + rows + " = " + total + " - " + row0 + " < " + tile_rows + " ? " + total +
         " - " + row0 + " : " + tile_rows + ";");
    scope_.insert(scope_.end(), {grid.row0, grid.rows});
    render_block(grid.body);
    scope_.resize(outside);
    close();
    close();
  }

  void render_node(const Single& single) {
    open("if (" + std::string(d_.worker) + " == 0)");
    render_block(single.body);
    close();
  }

  void render_node(const Sections& all) {
    const std::string workers(d_.num_workers), chunks = number(all.num_chunks()), chunk = number(all.chunk);
    const std::int64_t rounds = all.num_rounds();
    if (rounds > 1) {
      open_loop("turn", number(rounds));
      leave_if(d_.cancelled);
    }
    for (std::size_t i = 0; i < all.sections.size(); ++i) {
      const Section& section = all.sections[i];
      const std::size_t outside = scope_.size();
      open("");
      line("const " + index_type() + " place = " + number(static_cast<std::int64_t>(i)) + " % (2 * " + workers + ");");
      std::string mine =
          std::string(d_.worker) + " == (place < " + workers + " ? place : 2 * " + workers + " - 1 - place)";
      if (rounds > 1) {
        line("const " + index_type() + " done = turn - " + number(section.delay) + ";");
        mine += " && done >= 0 && done < " + chunks;
      }
      open("if (" + mine + ")");
      if (rounds > 1) {
        const std::string first = var(section.first), left = number(all.trip) + " - " + first;
        line("const " + index_type() + " " + first + " = " + chunk + " * " +
             (all.reverse ? "(" + chunks + " - 1 - done)" : "done") + ";");
        line("const " + index_type() + " " + var(section.steps) + " = " + left + " < " + chunk + " ? " + left + " : " +
             chunk + ";");
        scope_.insert(scope_.end(), {section.first, section.steps});
      }
      render_block(section.body);
      scope_.resize(outside);
      close();
      close();
    }
    if (rounds == 1) return;
    open("if (turn + 1 < " + number(rounds) + ")");
    line(std::string(d_.barrier));
    close();
    close();
  }
  void render_node(const Barrier&) { line(std::string(d_.barrier)); }

  Function function_;       // that is written
  bool is_part_ = false;    // and what it is
  std::vector<Var> scope_;  // its variables, those outside of it along, without the number of rows
  std::string parts_;       // functions before the kernel
  int num_parts_ = 0;
};

}  // namespace

std::string render(const Program& program, const Dialect& dialect) { return Renderer(program, dialect).run(); }

}  // namespace hotloop::render
