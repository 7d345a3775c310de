#include "backends/render/block_writer.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "backends/render/block_dot.h"
#include "backends/render/code_writer.h"
#include "backends/render/point_order.h"
#include "backends/render/renderer.h"
#include "core/index.h"
#include "hotloop/error.h"
#include "schedule/accesses.h"
#include "schedule/footprint.h"

namespace hotloop::render {

using namespace kernel;

namespace {

// Every thread of a worker runs the same statements with the same variables; the points of a Map, Dot or Pack are shared out among them. They meet
// before a statement that touches what one since their last meeting wrote, or writes what it read.
class BlockWriter : BlockDotWriter {
 public:
  BlockWriter(const Program& program, const Dialect& dialect, const WorkerShape& worker, bool profile)
      : BlockDotWriter(program, dialect, worker), profile_(profile) {}

  std::size_t num_ticks() const { return ticks_.size(); }
  using BlockDotWriter::near_bytes;
  std::string run() {
    out_ = d_.prelude;
    for (std::size_t i = 0; i < p_.buffers.size(); ++i)
      if (p_.buffers[i].space == Space::Constant) render_constant(static_cast<int>(i));
    line(comment(p_.name));
    out_ += d_.kernel_open;
    ++depth_;
    line("const int worker = hl_worker(), num_workers = hl_num_workers();");
    line("unsigned char* const scratch = ctx.scratch + worker * ctx.scratch_stride;");
    line("unsigned char* const near = hl_near();");
    line("(void)scratch; (void)near; (void)num_workers;");
    for (std::size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer& buf = p_.buffers[i];
      if (buf.space == Space::Worker && buf.near)
        render_buffer_at(static_cast<int>(i), "(near + " + std::to_string(buf.offset) + ")");
      else
        render_buffer(static_cast<int>(i));
    }
    line("const " + index_type() + " " + var(rows_var) + " = ctx.rows;");
    line("(void)" + var(rows_var) + ";");
    // A block's near memory may be stored to while it runs.
    if (blocks_ > 1) line("hl_sync();");
    if (profile_) line("HL_BEGIN_TICKS");
    render_block(p_.body);
    for (std::size_t i = 0; i < ticks_.size(); ++i)
      line("HL_PRINT_TICKS(" + std::to_string(i) + ", \"" + harmless(ticks_[i]) + "\");");
    if (blocks_ > 1) line("hl_sync();");
    --depth_;
    line("}");
    return std::move(out_);
  }

 private:
  // As words of the same size: bits that no literal of a float says, as those of a NaN, are kept.
  void render_constant(int b) {
    const Buffer& buf = buffer(b);
    const std::size_t size = size_of(buf.dtype);
    const std::string word = size == 8 ? "uint64_t" : size == 4 ? "uint32_t" : "uint8_t";
    const auto count = std::max<std::int64_t>(buf.elements, 1);
    std::string text =
        "alignas(16) HL_TABLE " + word + " c" + std::to_string(b) + "[" + std::to_string(count) + "] = {";
    for (std::int64_t i = 0; i < buf.elements; ++i)
      text += (i % 8 == 0 ? "\n  " : " ") + std::to_string(bits_of(buf, i)) + (size == 8 ? "ull," : "u,");
    line(text + (buf.elements == 0 ? "0};" : "};"));
    const std::string to = "const " + memory_type(buf.dtype) + "*";
    line("#define " + name(b) + " ((" + to + ")c" + std::to_string(b) + ")");
  }

  // Meetings.
  void meet() {
    if (since_.empty() && !wrote_near_) return;
    line("hl_sync();");
    met();
  }
  void met() {
    since_.clear();
    const std::string next = take_after_meeting();
    out_ += next;
    wrote_near_ = !next.empty();
  }
  // Nothing is left that others wait for.
  void settle() {
    meet();
    meet();
  }
  bool must_meet(const std::vector<Touch>& touches) const {
    return std::ranges::any_of(since_, [&](const Touch& a) {
      return std::ranges::any_of(touches, [&](const Touch& b) {
        if (!a.writes && !b.writes) return false;
        if (a.buffer != b.buffer) return lie_together(buffer(a.buffer), buffer(b.buffer));
        return conflict(a, b);
      });
    });
  }
  template <class Statement> void render_shared_out(const Statement& s) {
    Statement full = s;
    const std::string is_full = sums(s) ? make_full(full) : "";
    extents_stay_ = true;
    for_each_extent(s, [&](const Extent& e) { extents_stay_ = extents_stay_ && stays_in_loop(e); });
    std::vector<Touch> touches = touches_of(Stmt{s});
    // Factors are written near where others may still be read.
    if (writes_near(s) || writes_near(full) || must_meet(touches)) meet();
    since_.insert(since_.end(), touches.begin(), touches.end());
    if (is_full.empty()) {
      render_points(s);
    } else {
      only_if_ = is_full;
      open("if (" + is_full + ")");
      render_points(full);
      open_else();
      only_if_ = "!(" + is_full + ")";
      render_points(s);
      close();
      only_if_.clear();
    }
    if constexpr (std::is_same_v<Statement, Dot>) end_of_dot();
    if (!profile_) return;
    meet();
    tick(name_of_statement(s));
  }
  bool writes_near(const Dot& dot) { return BlockDotWriter::writes_near(dot); }
  template <class Statement> bool writes_near(const Statement&) { return false; }
  static std::string name_of_statement(const Map& map) { return "map " + map.name; }
  static std::string name_of_statement(const Dot& dot) { return "dot " + dot.name; }
  static std::string name_of_statement(const Pack&) { return "pack"; }
  static bool sums(const Map& map) { return map.num_outer < static_cast<int>(map.dims.size()); }
  static bool sums(const Dot&) { return true; }
  static bool sums(const Pack&) { return false; }
  void tick(const std::string& name) {
    line("HL_TICK(" + std::to_string(ticks_.size()) + ");");
    ticks_.push_back((loops_.empty() ? "" : "loop ") + name);
  }
  void render_block(const Block& block) {
    for (const Stmt& stmt : block) {
      statement_ = &stmt;
      std::visit([this](const auto& node) { render_node(node); }, stmt.node);
    }
  }
  void render_node(const Map& map) { render_shared_out(map); }
  void render_node(const Dot& dot) { render_shared_out(dot); }
  void render_node(const Pack& pack) { render_shared_out(pack); }

  // Maps.
  void render_points(const Map& map) {
    open("");
    line(comment("map " + map.name));
    const int num_dims = static_cast<int>(map.dims.size());
    const PointOrder order = order_of(map);
    const bool reduces = map.num_outer < num_dims, in_lanes = map.vector_dim >= map.num_outer && reduces;
    const int group = in_lanes ? map.lanes() : 1;
    std::string thread = "hl_thread()", threads = number(all_threads() / group);
    if (in_lanes) {
      line("const int lane = hl_thread() % " + number(group) + ";");
      thread = "hl_thread() / " + number(group);
    }
    if (map.split) {
      thread = next_workers(most_points(map, static_cast<std::size_t>(map.num_outer)) * group) + " * " + threads +
               " + " + thread;
      threads = "num_workers * " + threads;
    }
    open_points(map, order.shared, thread, threads, !map.split);
    for (const int d : order.in_order) open_loop(dim_var(map, d), extent(map.dims[static_cast<std::size_t>(d)].extent));
    const bool may_carry =
        !reduces && !map.split && order.in_order.empty() && most_points(map, map.dims.size()) <= all_threads();
    if (reduces) render_reductions(map, in_lanes, group);
    if (in_lanes) open("if (lane == 0)");
    const int first = reduces ? map.body_end : 0, end = static_cast<int>(map.instrs.size());
    const auto render = [&](int i) {
      if (!may_carry || !render_carried(map, i, order.shared)) render_of_point(map, i);
    };
    if (divides_at_once(map, first))
      render_with_quotients(map, first, render);
    else
      for (int i = first; i < end; ++i) render(i);
    if (in_lanes) close();
    for (std::size_t d = 0; d < order.in_order.size(); ++d) close();
    close();
    close();
  }
  static bool is_quotient(const Instr& in) {
    return in.kind == Instr::Kind::Op && in.op == ScalarOp::Div && in.dtype == DType::F32;
  }
  // Whether, from an instruction on, a point has several quotients that may be computed side by side: its stores can wait for all of them.
  static bool divides_at_once(const Map& map, int first) {
    int quotients = 0;
    bool stores = false;
    for (const Instr& in : std::span(map.instrs).subspan(static_cast<std::size_t>(first))) {
      quotients += is_quotient(in);
      if (in.kind == Instr::Kind::Load && stores) return false;
      stores = stores || in.kind == Instr::Kind::Store;
    }
    return quotients > 1;
  }
  // As if all quotients were of usual numbers; where one is not, what depends on them once more, by the language's own division.
  template <class Render> void render_with_quotients(const Map& map, int first, const Render& render) {
    const int end = static_cast<int>(map.instrs.size());
    std::vector<bool> depends(map.instrs.size());
    line("bool usual = true;");
    for (int i = first; i < end; ++i) {
      const Instr& in = map.instrs[static_cast<std::size_t>(i)];
      const auto after_a_quotient = [&](int reg) { return reg >= 0 && depends[static_cast<std::size_t>(reg)]; };
      depends[static_cast<std::size_t>(i)] =
          is_quotient(in) || in.kind == Instr::Kind::Store || std::ranges::any_of(in.args, after_a_quotient) ||
          std::ranges::any_of(in.access.indirect, [&](const Indirect& at) { return after_a_quotient(at.reg); });
      if (is_quotient(in))
        line("const float " + reg(i) + " = hl_quotient(" + reg(in.args[0]) + ", " + reg(in.args[1]) + ", usual);");
      else if (in.kind != Instr::Kind::Store)
        render(i);
    }
    open("if (HL_LIKELY(usual))");
    for (int i = first; i < end; ++i)
      if (map.instrs[static_cast<std::size_t>(i)].kind == Instr::Kind::Store) render_of_point(map, i);
    open_else();
    for (int i = first; i < end; ++i)
      if (depends[static_cast<std::size_t>(i)]) render_of_point(map, i);
    close();
  }
  void render_of_point(const Map& map, int i) {
    const Instr& in = map.instrs[static_cast<std::size_t>(i)];
    if (in.kind != Instr::Kind::Store) return render_instr(map, i);
    if (blocks_ == 1 || is_far(in.access))
      render_instr(map, i);
    else
      line(store_condition(in) + store_near(element(in.access), reg(in.args[0])));
    store_near_too(in);
  }
  // Of the first `num_dims` dims, at most.
  static std::int64_t most_points(const Map& map, std::size_t num_dims) {
    std::int64_t points = 1;
    for (std::size_t d = 0; d < num_dims; ++d) points *= std::max<std::int64_t>(map.dims[d].extent.bound, 1);
    return points;
  }
  // The worker's place among those that share out a statement. Small statements go to different ones, so that they run at once.
  std::string next_workers(std::int64_t work) {
    const std::string place =
        first_worker_ == 0 ? "worker" : "(int)((worker + " + number(first_worker_) + "u) % num_workers)";
    first_worker_ += divided_up(work, all_threads());
    if (first_worker_ >= p_.target.blocks_worth_having) first_worker_ = 0;
    return place;
  }
  // A load of which the next iteration's number can be read in this one, so that nobody waits for it.
  bool render_carried(const Map& map, int i, const std::vector<int>& dims) {
    const Instr& in = map.instrs[static_cast<std::size_t>(i)];
    if (in.kind != Instr::Kind::Load || in.args[0] >= 0) return false;
    const std::int64_t step = step_ahead(in.access);
    if (step == 0) return false;
    const std::string here = element(in.access);
    std::string outside = std::exchange(out_, "");
    open_points(map, dims, "hl_thread()", number(all_threads()), true);
    line("$next = " + here + ";");
    close();
    const std::string before = std::exchange(out_, std::move(outside));
    const std::string next = carried_register(in.dtype, before);
    line("const " + type(in.dtype) + " " + reg(i) + " = " + next + ";");
    line(next_read(next, here, step));
    return true;
  }
  static std::string dim_var(const Map& map, int d) { return var(map.dims[static_cast<std::size_t>(d)].var); }

  // A loop over the points of `dims`, the first of which is the fastest, from `thread` in steps of `threads`, which sets their variables.
  void open_points(const Map& map, const std::vector<int>& dims, const std::string& thread, const std::string& threads,
                   bool may_be_once) {
    constexpr std::int64_t most_counted_by_int = std::int64_t{1} << 30;
    std::int64_t most = 1;
    for (const int d : dims) most *= std::max<std::int64_t>(map.dims[static_cast<std::size_t>(d)].extent.bound, 1);
    const bool is_wide = most > most_counted_by_int;
    std::string total = is_wide ? "(int64_t)1" : "1";
    for (const int d : dims) total += " * " + extent(map.dims[static_cast<std::size_t>(d)].extent);
    const std::string counter = is_wide ? "int64_t" : "int", word = is_wide ? "uint64_t" : "unsigned";
    if (may_be_once && most <= all_threads() && threads == number(all_threads())) {
      line("const " + counter + " p = " + thread + ";");
      open("if (p < " + total + ")");
    } else {
      open("for (" + counter + " p = " + thread + ", n = " + total + "; p < n; p += " + threads + ")");
    }
    std::string rest = "(" + word + ")p";
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const Dim& dim = map.dims[static_cast<std::size_t>(dims[i])];
      const std::string size = "(" + word + ")" + extent(dim.extent);
      const bool is_last = i + 1 == dims.size();
      line("const " + index_type() + " " + var(dim.var) + " = (" + index_type() + ")(" +
           (is_last ? rest : rest + " % " + size) + ");");
      if (is_last) break;
      const std::string next = "q" + std::to_string(i);
      line("const " + word + " " + next + " = " + rest + " / " + size + ";");
      rest = next;
    }
  }

  // Leaves each accumulator's value in a0, a1, ...; in lanes that of the whole point in lane 0.
  void render_reductions(const Map& map, bool in_lanes, int group) {
    std::vector<std::pair<std::string, const Instr*>> accumulators;
    for (int i = map.body_end; i < static_cast<int>(map.instrs.size()); ++i) {
      const Instr& in = map.instrs[static_cast<std::size_t>(i)];
      if (in.kind != Instr::Kind::Reduced) break;
      accumulators.emplace_back("a" + std::to_string(i), &in);
      line(type(in.dtype) + " " + accumulators.back().first + " = " + identity(combiner(in), in.dtype) + ";");
    }
    const int num_dims = static_cast<int>(map.dims.size());
    for (int d = map.num_outer; d < num_dims; ++d) {
      const std::string end = extent(map.dims[static_cast<std::size_t>(d)].extent);
      if (d + 1 == num_dims) line(d == map.vector_dim ? "HL_UNROLL(4)" : "HL_UNROLL(16)");
      if (d == map.vector_dim)
        open_loop(dim_var(map, d), end, "lane", number(group));
      else
        open_loop(dim_var(map, d), end);
    }
    for (int i = 0; i < map.body_end; ++i) render_instr(map, i);
    for (const auto& [slot, in] : accumulators) line(slot + " = " + accumulated(*in, slot) + ";");
    for (int d = map.num_outer; d < num_dims; ++d) close();
    if (!in_lanes) return;
    for (const auto& [slot, in] : accumulators)
      for (int delta = group / 2; delta > 0; delta /= 2) {
        const std::string other = "hl_down(" + slot + ", " + number(delta) + ", " + number(group) + ")";
        line("{ const " + type(in->dtype) + " other = " + other + "; " + slot + " = " +
             expression(combiner(*in), in->dtype, slot, "other") + "; }");
      }
  }

  void render_points(const Pack& pack) {
    const std::int64_t lanes = lanes_of(pack.dtype), padded = divided_up(pack.n, lanes) * lanes;
    const std::string it = index_type();
    open("");
    line("// pack");
    line("const " + type(pack.dtype) + "* const from = " + pointer(pack.source) + ";");
    line(type(pack.dtype) + "* const to = " + name(pack.target) + ";");
    const std::string thread = pack.split ? "worker * HL_THREADS + hl_thread()" : "hl_thread()";
    const std::string threads = pack.split ? "num_workers * HL_THREADS" : "HL_THREADS";
    // Neighbouring threads read side by side where the source lies so, else they write side by side.
    const bool down = std::abs(pack.k_stride) < std::abs(pack.n_stride);
    open("for (" + it + " p = " + thread + "; p < " + number(pack.k * padded) + "; p += " + threads + ")");
    const std::string fast = number(down ? pack.k : padded);
    line("const " + it + " " + (down ? "k" : "n") + " = p % " + fast + ", " + (down ? "n" : "k") + " = p / " + fast +
         ";");
    line("const " + it + " n0 = n / " + number(pack.panel) + " * " + number(pack.panel) + ", w = " + number(padded) +
         " - n0 < " + number(pack.panel) + " ? " + number(padded) + " - n0 : " + number(pack.panel) + ";");
    line(store(pack.target, "to[n0 * " + number(pack.k) + " + k * w + (n - n0)]",
               "n < " + number(pack.n) + " ? from[" + scaled(pack.k_stride, "k") + " + " + scaled(pack.n_stride, "n") +
                   "] : 0"));
    close();
    close();
  }
  void render_points(const Dot& dot) { render_dot(dot); }

  // What holds statements.
  static constexpr std::int64_t steps_between_polls = 64;
  void render_node(const For& loop) {
    settle();
    const std::string counter = var(loop.counter), trip = extent(loop.trip);
    loops_.push_back({&loop, loop.reverse ? trip + " - 1" : "(" + trip + " > 0 ? 0 : -1)",
                      loop.reverse ? counter + " > 0" : counter + " + 1 < " + trip, ""});
    stage_in_loop(loop);
    // The host asks a run to end by a word in the device's memory; reading it costs more than a step of a small loop, and so does asking in each step whether
    // it is time to. What ends early asks none the less: it may be left in any step.
    const bool has_loops =
        std::ranges::any_of(loop.body, [](const Stmt& s) { return std::holds_alternative<For>(s.node); });
    const bool in_strips = !has_loops && !loop.stop;
    std::string outside = std::exchange(out_, "");
    if (in_strips)
      open_strips(loop);
    else if (loop.reverse)
      open("for (" + index_type() + " " + counter + " = " + trip + " - 1; " + counter + " >= 0; --" + counter + ")");
    else
      open_loop(counter, trip);
    if (!in_strips) {
      const std::string last = number(steps_between_polls - 1);
      line("if (" + (has_loops ? "" : "(" + counter + " & " + last + ") == " + last + " && ") +
           "hl_any(*ctx.cancel != 0)) return;");
    }
    if (loop.stop) {
      open("");
      render_block(loop.test);
      settle();
      close();
      // Read by all before anyone may write there again.
      line("const bool stop = " + element(*loop.stop) + ";");
      line("hl_sync();");
      line("if (stop) break;");
    }
    render_block(loop.body);
    settle();
    if (in_strips)
      close_strips(loop);
    else
      close();
    const std::string inside = std::exchange(out_, std::move(outside));
    // Without an iteration no meeting would follow: another block might store where this one still writes what the loop was to keep.
    if (blocks_ > 1 && !loops_.back().before.empty() && !loop.trip.is_static()) loops_.back().before += "hl_sync();\n";
    out_ += loops_.back().before + inside;
    loops_.pop_back();
    leave(loop);
  }

  // A loop over strips of a loop's steps, between which the host is asked, and the loop over the steps of one.
  static bool has_strips(const For& loop) { return !loop.trip.is_static() || loop.trip.bound > steps_between_polls; }
  void open_strips(const For& loop) {
    const std::string counter = var(loop.counter), trip = extent(loop.trip), strip = number(steps_between_polls);
    const std::string it = index_type(), begin = counter + "_begin", end = counter + "_end";
    std::string first = loop.reverse ? trip + " - 1" : "0", beyond = loop.reverse ? "-1" : trip;
    if (has_strips(loop)) {
      open("for (" + it + " " + begin + " = " + first + "; " + begin + (loop.reverse ? " >= 0" : " < " + trip) + ";)");
      line("const " + it + " " + end + " = " +
           (loop.reverse ? begin + " >= " + strip + " ? " + begin + " - " + strip + " : -1;"
                         : trip + " - " + begin + " > " + strip + " ? " + begin + " + " + strip + " : " + trip + ";"));
      first = begin;
      beyond = end;
    }
    if (loop.reverse)
      open("for (" + it + " " + counter + " = " + first + "; " + counter + " > " + beyond + "; --" + counter + ")");
    else
      open_loop(counter, beyond, first);
  }
  void close_strips(const For& loop) {
    close();
    if (!has_strips(loop)) return;
    const std::string begin = var(loop.counter) + "_begin";
    line(begin + " = " + var(loop.counter) + "_end;");
    line("if (" + begin + (loop.reverse ? " >= 0" : " < " + extent(loop.trip)) +
         " && hl_any(*ctx.cancel != 0)) return;");
    close();
  }

  void render_node(const Let& let) {
    if (!let.number) settle();
    const std::string v = var(let.var), low = number(let.low), high = number(let.high),
                      value = let.number ? "(" + affine(*let.number) + ")" : element(let.source);
    line("const int64_t " + v + "_raw = (int64_t)" + value + ";");
    line("const " + index_type() + " " + v + " = (" + index_type() + ")(" + v + "_raw < " + low + " ? " + low + " : " +
         v + "_raw > " + high + " ? " + high + " : " + v + "_raw);");
    if (!let.number) line("hl_sync();");
  }

  void render_node(const Grid& grid) {
    settle();
    const std::string block = var(grid.block), row0 = var(grid.row0), rows = var(grid.rows), total = extent(grid.total);
    const std::string per_block = number(grid.tiles_per_block), tile_rows = number(grid.tile_rows), it = index_type();
    open_loop(block, number(grid.num_blocks), "worker", "num_workers");
    line("if (hl_any(*ctx.cancel != 0)) return;");
    render_block(grid.prologue);
    settle();
    open_loop("tile", "(" + block + " + 1) * " + per_block, block + " * " + per_block);
    line("const " + it + " " + row0 + " = tile * " + tile_rows + ";");
    line("if (" + row0 + " >= " + total + ") break;");
    line("const " + it + " " + rows + " = " + total + " - " + row0 + " < " + tile_rows + " ? " + total + " - " + row0 +
         " : " + tile_rows + ";");
    line("(void)" + rows + ";");
    render_block(grid.body);
    settle();
    close();
    close();
  }

  void render_node(const Single& single) {
    settle();
    open("if (worker == 0)");
    render_block(single.body);
    settle();
    close();
  }
  void render_node(const Sections&) {
    throw InternalError(__FILE__, __LINE__, "sections are not made for blocks of threads");
  }
  void render_node(const Barrier&) {
    line(std::string(d_.barrier));
    met();
    if (profile_) tick("barrier");
  }

  int all_threads() const { return blocks_ * threads_; }  // of a worker

  bool profile_;
  std::int64_t first_worker_ = 0;
  std::vector<std::string> ticks_;
  std::vector<Touch> since_;  // the last meeting
  bool wrote_near_ = false;   // since then, factors of the next iteration
};

}  // namespace

BlockText write_for_blocks(const Program& program, const Dialect& dialect, const WorkerShape& worker, bool profile) {
  BlockWriter writer(program, dialect, worker, profile);
  std::string text = writer.run();
  return {std::move(text), writer.near_bytes(), writer.num_ticks()};
}

}  // namespace hotloop::render
