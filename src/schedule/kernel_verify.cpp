// The rules of kernel IR. Each broken one is a defect of ours, so the message names the statement and the rule.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "hotloop/error.h"
#include "schedule/accesses.h"
#include "schedule/kernel_ir.h"
#include "schedule/phases.h"
#include "schedule/sections.h"

namespace hotloop::kernel {
namespace {

struct Range {
  std::int64_t low = 0, high = 0;
};

// What a statement adds to the index of an access: an interval, and for each row of the tile after the first `per_row` more. The interval holds what it
// adds along extents of a number that is known, too.
struct Span {
  Range range;
  std::int64_t per_row = 0;
  std::vector<Term> along = {};
};

// What is known of a variable in scope.
struct Known {
  Range range;
  Var limit = -1;                     // the run-time extent it stays below
  std::optional<Affine> number = {};  // it is no more than that, if more than its least
};

// The tile loop being checked; its row variables are bounded together.
struct Tile {
  Var row0 = -1, rows = -1;
  std::int64_t total = 0, tile_rows = 1;
};

enum class Place { Outside, Grid, Single, Section };

class Verifier {
 public:
  explicit Verifier(const Program& program) : p_(program) {}

  void run() {
    at_ = "program " + p_.name;
    check(!p_.vars.empty(), "variable 0 must be the number of rows");
    check(p_.max_rows >= 0, "max_rows must not be negative");
    check(p_.target.dot_rows > 0 && p_.target.dot_vectors > 0, "the dot tile must not be empty");
    for (std::size_t i = 0; i < p_.buffers.size(); ++i) verify_buffer(p_.buffers[i]);
    define(rows_var, {{0, p_.max_rows}, -1});
    verify_block(p_.body, Place::Outside);
    at_ = "program " + p_.name;
    check(p_.in_place.empty() || p_.in_place.size() == p_.results.size(), "in_place has an entry a result");
    for (std::size_t i = 0; i < p_.results.size(); ++i) {
      const int argument = p_.in_place.empty() ? -1 : p_.in_place[i];
      if (argument >= 0) {
        check(static_cast<std::size_t>(argument) < p_.arguments.size() &&
                  p_.arguments[static_cast<std::size_t>(argument)] == p_.results[i],
              "a result takes over an argument of its type");
        check(!touched_arguments_.contains(argument),
              "argument " + std::to_string(argument) + " must be read as the result that took it over");
        continue;
      }
      check(p_.results[i].shape.size() == 0 || written_results_.contains(static_cast<int>(i)),
            "result " + std::to_string(i) + " must be written");
    }
  }

 private:
  void check(bool condition, const std::string& rule) const {
    if (!condition) throw InternalError("kernel_ir", 0, "kernel IR, " + at_ + ": " + rule);
  }

  void verify_buffer(const Buffer& b) {
    at_ = "buffer " + b.name;
    check(b.elements >= 0, "the number of elements must not be negative");
    const std::int64_t bytes = bytes_of(b);
    const auto verify_external = [&](const std::vector<ValueType>& types) {
      check(b.index >= 0 && static_cast<std::size_t>(b.index) < types.size(),
            "its index must name an argument or result");
      const ValueType& type = types[static_cast<std::size_t>(b.index)];
      check(type.dtype == b.dtype && type.shape.size() == b.elements, "dtype and size must be those of " + type.str());
    };
    const auto verify_arena = [&](std::int64_t size) {
      check(b.offset >= 0 && b.offset % vector_bytes == 0, "the offset must be a multiple of 64");
      check(b.offset + bytes <= size, "it must lie within its arena");
    };
    switch (b.space) {
      case Space::Argument: return verify_external(p_.arguments);
      case Space::Result: return verify_external(p_.results);
      case Space::Shared: return verify_arena(p_.shared_bytes);
      case Space::Worker: return verify_arena(b.near ? p_.near_bytes : p_.worker_bytes);
      case Space::Constant:
        check(b.data.defined() && b.data.dtype() == b.dtype && b.data.size() == b.elements,
              "a constant needs data of its dtype and size");
    }
  }

  // Variables.
  void define(Var v, const Known& known) {
    check(v >= 0 && static_cast<std::size_t>(v) < p_.vars.size(), "variable " + std::to_string(v) + " has no name");
    check(!scope_.contains(v), "variable " + p_.vars[static_cast<std::size_t>(v)] + " is already in scope");
    scope_[v] = known;
  }
  void verify_var(Var v) const {
    check(scope_.contains(v), "variable " + std::to_string(v) + " must be defined before use and in scope");
  }
  void verify_affine(const Affine& a) const {
    for (std::size_t i = 0; i < a.terms.size(); ++i) {
      verify_var(a.terms[i].var);
      check(a.terms[i].coefficient != 0, "an affine term must not have coefficient 0");
      check(i == 0 || a.terms[i - 1].var < a.terms[i].var, "affine terms must be sorted by variable");
    }
  }
  Range verify_extent(const Extent& e) const {
    check(e.bound >= 0, "an extent must not be negative");
    if (e.is_static()) return {e.bound, e.bound};
    verify_var(e.var);
    const Range range = scope_.at(e.var).range;
    check(range.low >= 0 && range.high <= e.bound, "an extent lies between 0 and its bound, its variable in [" +
                                                       std::to_string(range.low) + ", " + std::to_string(range.high) +
                                                       "] with " + std::to_string(e.bound));
    return {0, e.bound};
  }
  Known counter_of(const Extent& e) const {
    verify_extent(e);
    return {{0, std::max<std::int64_t>(e.bound - 1, 0)}, e.var};
  }

  // Interval of an index, or nothing where variables hang together in ways an interval does not see.
  std::optional<Range> range_of(const Affine& a, const Span& span = {}) const {
    std::optional<Range> range = interval_of(a, span);
    // What counts below a number ends one before it, whatever else that number depends on: rows of a part with the tile.
    const auto ends_at = [&](const Affine& last, const Span& rest) {
      const auto known = interval_of(last, rest);
      if (range && known) range->high = std::min(range->high, known->high);
    };
    for (const Term& term : a.terms) {
      const Var limit = scope_.at(term.var).limit;
      const std::optional<Affine> number = limit >= 0 ? scope_.at(limit).number : std::nullopt;
      if (number && term.coefficient > 0) ends_at(a.substituted(term.var, *number + Affine(-1)), span);
    }
    for (const Term& term : span.along) {
      Span rest = span;
      rest.range.high -= term.coefficient * std::max<std::int64_t>(scope_.at(term.var).range.high - 1, 0);
      ends_at(a + (*scope_.at(term.var).number + Affine(-1)) * term.coefficient, rest);
    }
    return range;
  }
  std::optional<Range> interval_of(const Affine& a, const Span& span) const {
    for (const Term& term : a.terms) {
      const Var limit = scope_.at(term.var).limit;
      const bool limit_occurs = limit >= 0 && a.coefficient(limit) != 0;
      if (limit_occurs) return std::nullopt;
    }
    const bool tiled = tile_.row0 >= 0 && a.coefficient(tile_.row0) != 0;
    const auto widened = [&](Range r, std::int64_t rows) {
      r.low += span.range.low;
      r.high += span.range.high;
      (span.per_row < 0 ? r.low : r.high) += span.per_row * std::max<std::int64_t>(rows - 1, 0);
      return r;
    };
    if (!tiled) return widened(range_with(a, {}, -1), tile_.tile_rows);
    if (tile_.total == 0) return std::nullopt;
    // The corners of (row0, row within the tile): the last tile is the short one.
    const std::int64_t last = (tile_.total - 1) / tile_.tile_rows * tile_.tile_rows;
    std::optional<Range> all;
    for (const std::int64_t row0 : {std::int64_t{0}, last - tile_.tile_rows, last}) {
      if (row0 < 0) continue;
      const std::int64_t rows = std::min(tile_.tile_rows, tile_.total - row0);
      const Range r = widened(range_with(a, row0, rows), rows);
      all = all ? Range{std::min(all->low, r.low), std::max(all->high, r.high)} : r;
    }
    return all;
  }
  Range range_with(const Affine& a, std::optional<std::int64_t> row0, std::int64_t rows) const {
    Range sum{a.constant, a.constant};
    for (const Term& term : a.terms) {
      const Known& known = scope_.at(term.var);
      Range r = known.range;
      if (row0 && term.var == tile_.row0) r = {*row0, *row0};
      if (row0 && term.var == tile_.rows) r = {rows, rows};
      if (row0 && known.limit == tile_.rows) r.high = std::min(r.high, rows - 1);
      sum.low += term.coefficient * (term.coefficient > 0 ? r.low : r.high);
      sum.high += term.coefficient * (term.coefficient > 0 ? r.high : r.low);
    }
    return sum;
  }
  bool scope_may_be_empty() const { return empty_depth_ > 0; }

  // Memory. `span` is what a statement adds to the index.
  const Buffer& verify_access(const Access& access, DType dtype, bool proves = true, const Span& span = {}) const {
    check(access.buffer >= 0 && static_cast<std::size_t>(access.buffer) < p_.buffers.size(),
          "an access must name a buffer");
    const Buffer& b = p_.buffers[static_cast<std::size_t>(access.buffer)];
    check(b.dtype == dtype, "the access to " + b.name + " must have its dtype, " + std::string(name_of(b.dtype)));
    verify_affine(access.index);
    if (b.space == Space::Argument) touched_arguments_.insert(b.index);
    if (proves && access.indirect.empty() && !scope_may_be_empty()) {
      if (const auto range = range_of(access.index, span)) {
        const std::int64_t low = range->low, high = range->high;
        check(low >= 0 && high < b.elements, "the access to " + b.name + " runs over [" + std::to_string(low) + ", " +
                                                 std::to_string(high) + "] of " + std::to_string(b.elements) +
                                                 " elements");
      }
    }
    return b;
  }
  void verify_written(const Buffer& b, const Affine& index, Place place, bool split) {
    check(b.space != Space::Argument && b.space != Space::Constant, b.name + " is read only");
    if (place == Place::Grid && grid_->num_blocks > 1 && b.space != Space::Worker && b.elements > 0)
      check(index.coefficient(grid_->block) != 0 || index.coefficient(grid_->row0) != 0,
            "every block would write the same elements of " + b.name + ": in a Grid each has its own");
    check(place != Place::Outside || split || b.space == Space::Worker,
          "all workers would write " + b.name + ": outside Grid, Single and Sections only a split Map or Pack may");
    if (b.space == Space::Result) written_results_[b.index] = true;
  }

  // Statements.
  void verify_block(const Block& block, Place place, int read_before = -1) {
    const auto outer = scope_;  // a Let lives until the end of its block
    if (place == Place::Outside) {
      const auto broken = broken_phase(p_, block, read_before);
      check(!broken, broken.value_or(""));
    }
    for (const Stmt& stmt : block) {
      std::visit([&](const auto& node) { verify_node(node, place); }, stmt.node);
    }
    scope_ = outer;
  }

  void verify_node(const Map& map, Place place) {
    at_ = "map " + map.name;
    const int num_dims = static_cast<int>(map.dims.size());
    const int num_instrs = static_cast<int>(map.instrs.size());
    check(map.num_outer >= 0 && map.num_outer <= num_dims, "num_outer must count some of its dims");
    check(map.vector_dim >= -1 && map.vector_dim < num_dims, "vector_dim must be one of its dims or -1");
    check(map.body_end >= 0 && map.body_end <= num_instrs, "body_end must lie within its instructions");
    check(map.num_outer < num_dims || map.body_end == num_instrs, "without reduced dims the body is everything");
    check(!map.split || (place == Place::Outside && map.num_outer > 0),
          "only a Map outside Grid and Single, with an outer dim, is split");
    const auto saved = scope_;
    const int saved_empty = empty_depth_;
    std::vector<Known> counters;  // extents do not depend on one another
    for (const Dim& dim : map.dims) counters.push_back(counter_of(dim.extent));
    for (std::size_t d = 0; d < map.dims.size(); ++d) define(map.dims[d].var, counters[d]);
    auto outer_scope = scope_;
    for (int d = map.num_outer; d < num_dims; ++d) outer_scope.erase(map.dims[static_cast<std::size_t>(d)].var);
    const auto is_empty = [](const Dim& dim) { return dim.extent.bound == 0; };
    const bool outer_empty = std::any_of(map.dims.begin(), map.dims.begin() + map.num_outer, is_empty);
    const bool body_empty = std::any_of(map.dims.begin(), map.dims.end(), is_empty);
    empty_depth_ = saved_empty + body_empty;
    for (int i = 0; i < num_instrs; ++i) {
      if (i == map.body_end) {
        scope_ = outer_scope;
        empty_depth_ = saved_empty + outer_empty;
      }
      at_ = "map " + map.name + " %" + std::to_string(i);
      verify_instr(map, i, place);
    }
    scope_ = saved;
    empty_depth_ = saved_empty;
  }

  DType verify_reg(const Map& map, int at, int reg) const {
    check(reg >= 0 && reg < at, "register %" + std::to_string(reg) + " must be defined before use");
    const Instr& in = map.instrs[static_cast<std::size_t>(reg)];
    check(in.kind != Instr::Kind::Store, "a store defines no register");
    check(at < map.body_end || reg >= map.body_end, "code after a reduction must not use registers of the body");
    return in.dtype;
  }

  void verify_instr(const Map& map, int i, Place place) {
    const Instr& in = map.instrs[static_cast<std::size_t>(i)];
    const auto verify_predicate = [&](int reg) {
      if (reg >= 0) check(verify_reg(map, i, reg) == DType::Bool, "a predicate must be bool");
    };
    for (const Indirect& indirect : in.access.indirect) {
      check(is_integer(verify_reg(map, i, indirect.reg)), "an indirect index must be an integer");
    }
    switch (in.kind) {
      case Instr::Kind::Op: return verify_op(map, i);
      case Instr::Kind::Const:
        check(size_of(in.dtype) == 8 || in.bits >> (8 * size_of(in.dtype)) == 0, "a constant must be zero-extended");
        check(in.dtype != DType::Bool || in.bits <= 1, "a bool is 0 or 1");
        return;
      case Instr::Kind::Index:
        check(is_integer(in.dtype), "an index must be an integer");
        check(in.access.indirect.empty(), "an index is affine");
        return verify_affine(in.access.index);
      case Instr::Kind::Load:
        verify_predicate(in.args[0]);
        verify_access(in.access, in.dtype, in.args[0] < 0);
        return;
      case Instr::Kind::Store:
        check(verify_reg(map, i, in.args[0]) == in.dtype, "the stored value must have the dtype of the store");
        verify_predicate(in.args[1]);
        if (map.vector_dim >= 0 && map.vector_dim < map.num_outer && in.access.indirect.empty() &&
            !scope_may_be_empty())
          check(in.access.index.coefficient(map.dims[static_cast<std::size_t>(map.vector_dim)].var) != 0 ||
                    map.dims[static_cast<std::size_t>(map.vector_dim)].extent.bound <= 1,
                "points of a vector must not store at one place");
        return verify_written(verify_access(in.access, in.dtype, in.args[1] < 0), in.access.index, place, map.split);
      case Instr::Kind::Reduced: {
        const bool first = i == map.body_end || map.instrs[static_cast<std::size_t>(i - 1)].kind == in.kind;
        check(i >= map.body_end && first, "reductions must stand at the start of what follows the body");
        using enum ScalarOp;
        for (int k = 0; k < (in.op == Fma ? 2 : 1); ++k) {
          check(in.args[k] >= 0 && in.args[k] < map.body_end, "a reduction must name a register of the body");
          const Instr& value = map.instrs[static_cast<std::size_t>(in.args[k])];
          check(value.kind != Instr::Kind::Store && value.dtype == in.dtype, "a reduction must keep the dtype");
        }
        check((in.op == Fma) == (in.args[1] >= 0), "a sum of products, and no other reduction, has two factors");
        if (in.op == Fma) {
          check(is_float(in.dtype), "a sum of products is of floats");
          return;
        }
        const bool logical = in.op == And || in.op == Or;
        const bool arithmetic = in.op == Add || in.op == Mul || in.op == Max || in.op == Min;
        check(logical ? !is_float(in.dtype) : arithmetic && in.dtype != DType::Bool,
              "a reduction is by add, mul, max, "
              "min of numbers, or by and, or of integers and bools");
      }
    }
  }

  void verify_op(const Map& map, int i) const {
    const Instr& in = map.instrs[static_cast<std::size_t>(i)];
    DType types[3] = {in.dtype, in.dtype, in.dtype};
    for (int k = 0; k < 3; ++k) {
      if (k < ir::num_operands(in.op))
        types[k] = verify_reg(map, i, in.args[k]);
      else
        check(in.args[k] == -1, "an operation has no more operands than it takes");
    }
    using enum ScalarOp;
    const DType d = in.dtype;
    const auto same = [&](int from) {
      for (int k = from; k < ir::num_operands(in.op); ++k)
        check(types[k] == d, "operands and result must agree in dtype");
    };
    switch (in.op) {
      case None: return check(false, "an operation must be named");
      case Cast: return;
      case Bitcast: return check(size_of(types[0]) == size_of(d), "a bitcast must keep the size");
      case Eq:
      case Ne:
      case Lt:
      case Le:
      case Gt:
      case Ge:
        check(d == DType::Bool, "a comparison gives bool");
        return check(types[0] == types[1], "compared values must agree in dtype");
      case Select: check(types[0] == DType::Bool, "select needs a bool"); return same(1);
      case Not:
      case And:
      case Or:
      case Xor: check(!is_float(d), "a logical operation needs integers or bools"); return same(0);
      case Shl:
      case Shr: check(is_integer(d), "a shift needs integers"); return same(0);
      case Floor:
      case Ceil:
      case Rint:
      case Sqrt:
      case Exp:
      case Expm1:
      case Log:
      case Log1p:
      case Sin:
      case Cos:
      case Tanh:
      case Sigmoid:
      case Erf:
      case ErfInv:
      case Erfc:
      case Ndtr:
      case LogNdtr:
      case FarAngle:
      case FarTurns:
      case Ldexp:
      case FarRem:
      case Fma:
      case Pow: check(is_float(d), "it is defined for floats only"); return same(0);
      case Random: check(d == DType::U32, "random words are u32"); return same(0);
      case Copy:
      case Min:
      case Max: return same(0);
      default: check(d != DType::Bool, "arithmetic needs numbers"); return same(0);
    }
  }

  void extend(Span& span, const Extent& e, std::int64_t stride) const {
    if (tile_.rows >= 0 && e.var == tile_.rows) {
      span.per_row += stride;
      return;
    }
    const std::int64_t reach = std::max<std::int64_t>(e.bound - 1, 0) * stride;
    (reach < 0 ? span.range.low : span.range.high) += reach;
    if (reach > 0 && e.var >= 0 && scope_.at(e.var).number && scope_.at(e.var).range.high == e.bound)
      span.along.push_back({e.var, stride});
  }

  Span span_of(const Use& use) const {
    if (use.panels) return {{0, *use.panels - 1}, 0};
    Span span;
    for (const auto& stride : use.strides) extend(span, stride.extent, *stride.elements);
    return span;
  }
  static bool is_empty(const Use& use) {
    return use.panels == 0 ||
           std::ranges::any_of(use.strides, [](const auto& stride) { return stride.extent.bound == 0; });
  }

  void verify_node(const Dot& dot, Place place) {
    at_ = "dot " + dot.name;
    check(is_float(dot.dtype), "it is defined for floats only");
    check(!dot.pairs || dot.dtype == DType::F32, "pairs are summed in f32");
    check(!dot.in_blocks || dot.pairs, "what is multiplied in blocks is pairs");
    check(dot.n.is_static(), "n must be static");
    verify_extent(dot.m);
    verify_extent(dot.n);
    const bool tile_high = dot.m.var >= 0 && dot.m.var == tile_.rows;  // a tile has a row at least
    const bool proves = (dot.m.is_static() || tile_high) && dot.m.bound > 0 && dot.n.bound > 0;
    for (const DotSegment& s : dot.segments) {
      check(s.k.size() <= 3, "a segment has at most 3 dims of k");
      check(s.panel % lanes_of(dot.dtype) == 0, "panels are whole logical vectors");
      check(!s.packed() || s.panel == dot.panel(), "packed segments have panels of one width");
      for (const KDim& k : s.k) verify_extent(k.extent);
      if (dot.in_blocks) verify_blocks(s);
    }
    for_each_access(dot, [&](const Use& use) {
      check(use.access->indirect.empty(), "its operands are affine");
      const Buffer& buffer = verify_access(*use.access, use.dtype, proves && !is_empty(use), span_of(use));
      if (use.writes) verify_written(buffer, use.access->index, place, false);
    });
  }

  void verify_blocks(const DotSegment& s) const {
    check(s.panel == columns_of_blocks,
          "segments in blocks are packed in panels of so many columns as two blocks have");
    check(s.k.size() == 1 && s.k[0].extent.is_static() && s.k[0].extent.bound % steps_of_block == 0,
          "the steps of a sum in blocks are whole blocks");
    const auto begins_panels = [&](const Affine& index, std::int64_t width) {
      const std::int64_t panel = std::max<std::int64_t>(1, width * s.k[0].extent.bound);
      return index.constant % panel == 0 &&
             std::ranges::all_of(index.terms, [&](const Term& term) { return term.coefficient % panel == 0; });
    };
    check(begins_panels(s.a.index, rows_of_blocks) && begins_panels(s.b.index, columns_of_blocks),
          "a factor in blocks begins with a panel");
  }

  void verify_node(const Pack& pack, Place place) {
    at_ = "pack";
    check(pack.k >= 0 && pack.n >= 0, "its extents must not be negative");
    check(!pack.split || place == Place::Outside, "only a Pack outside Grid and Single is split");
    check(is_float(pack.dtype) || pack.dtype == DType::U32, "it is defined for floats and pairs of bfloat16");
    check(pack.panel > 0 && pack.panel % lanes_of(pack.dtype) == 0, "panels are whole logical vectors");
    check(pack.source.indirect.empty(), "its source is affine");
    for_each_access(pack, [&](const Use& use) {
      const Buffer& buffer = verify_access(*use.access, use.dtype, !is_empty(use), span_of(use));
      if (use.writes) verify_written(buffer, use.access->index, place, pack.split);
    });
  }

  void verify_node(const For& loop, Place place) {
    at_ = "for";
    const auto saved = scope_;
    const Known counter = counter_of(loop.trip);
    check(loop.stop || loop.test.empty(), "a test needs a stop value");
    define(loop.counter, counter);
    empty_depth_ += loop.trip.bound == 0;
    verify_block(loop.test, place);
    at_ = "for";
    if (loop.stop) verify_scalar(*loop.stop, DType::Bool);
    verify_block(loop.body, place, loop.stop ? loop.stop->buffer : -1);
    empty_depth_ -= loop.trip.bound == 0;
    scope_ = saved;
  }

  void verify_scalar(const Access& access, DType dtype) const {
    check(access.indirect.empty(), "a scalar is read at an affine index");
    verify_access(access, dtype);
  }

  void verify_node(const Let& let, Place) {
    at_ = "let";
    check(let.low <= let.high, "its range must not be empty");
    if (let.number) {
      verify_affine(*let.number);
    } else {
      check(is_integer(let.dtype), "it reads an integer");
      verify_scalar(let.source, let.dtype);
    }
    define(let.var, {{let.low, let.high}, -1, let.number});
  }

  void verify_node(const Grid& grid, Place place) {
    at_ = "grid";
    check(place == Place::Outside, "a Grid must not stand in a Grid, Single or section");
    check(grid.tile_rows > 0 && grid.num_blocks > 0 && grid.tiles_per_block > 0, "tiles and blocks must not be empty");
    verify_extent(grid.total);
    check(grid.tile_rows * grid.num_blocks * grid.tiles_per_block >= grid.total.bound,
          "its blocks must cover all rows");
    const auto saved = scope_;
    define(grid.block, {{0, grid.num_blocks - 1}, -1});
    grid_ = &grid;
    verify_block(grid.prologue, Place::Grid);
    at_ = "grid";
    define(grid.row0, {{0, std::max<std::int64_t>(grid.total.bound - 1, 0)}, -1});
    define(grid.rows, {{1, grid.tile_rows}, -1});
    tile_ = {grid.row0, grid.rows, grid.total.bound, grid.tile_rows};
    verify_block(grid.body, Place::Grid);
    tile_ = {};
    grid_ = nullptr;
    scope_ = saved;
  }

  void verify_node(const Single& single, Place place) {
    at_ = "single";
    check(place == Place::Outside, "a Single must not stand in a Grid, Single or section");
    verify_block(single.body, Place::Single);
  }

  void verify_node(const Sections& all, Place place) {
    at_ = "sections";
    check(place == Place::Outside, "Sections must not stand in a Grid, Single or section");
    const auto saved = scope_;
    for (const Section& section : all.sections) {
      if (section.first >= 0) define(section.first, {{0, std::max<std::int64_t>(all.trip - 1, 0)}, -1});
      if (section.steps >= 0) define(section.steps, {{1, all.chunk}, -1});
      if (section.first >= 0)
        tile_ = {section.first, section.steps, all.trip, all.chunk};  // bounded together, as there
      verify_block(section.body, Place::Section);
      tile_ = {};
      scope_ = saved;
      at_ = "sections";
    }
    const auto broken = broken_rule(p_, all);
    check(!broken, broken.value_or(""));
  }

  void verify_node(const Barrier&, Place place) {
    at_ = "barrier";
    check(place == Place::Outside, "a Barrier must not stand in a Grid, Single or section");
  }

  const Program& p_;
  std::string at_;
  std::map<Var, Known> scope_;
  std::map<int, bool> written_results_;
  mutable std::set<int> touched_arguments_;
  Tile tile_;
  const Grid* grid_ = nullptr;
  int empty_depth_ = 0;  // loops around that never run
};

}  // namespace

void verify(const Program& program) { Verifier(program).run(); }

}  // namespace hotloop::kernel
