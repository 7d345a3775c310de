#include "schedule/stream_lanes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "schedule/cost.h"
#include "schedule/map_writer.h"

namespace hotloop::kernel {
namespace {

enum class Phase { Before, Loop, After };  // of a tile's statements

// The dim whose points are the rows of the tile, or -1.
int rows_dim(const Map& map, Var rows) {
  for (std::size_t d = 0; d < map.dims.size(); ++d)
    if (map.dims[d].extent.var == rows) return static_cast<int>(d);
  return -1;
}

// Whether a tile may stream, and what the rewriting needs to know of its memory.
class StreamAnalysis {
 public:
  StreamAnalysis(const Program& program, const Grid& grid) : program_(program), grid_(grid) {}

  // The loop's position in the tile's body, if all rules hold.
  std::optional<std::size_t> run() {
    const auto first =
        std::ranges::find_if(grid_.body, [](const Stmt& s) { return std::holds_alternative<For>(s.node); });
    if (first == grid_.body.end() || !grid_.prologue.empty() || grid_.tiles_per_block < 2) return std::nullopt;
    if (grid_.tile_rows * grid_.tiles_per_block > std::numeric_limits<std::int32_t>::max() / 2) return std::nullopt;
    const For& loop = std::get<For>(first->node);
    if (!loop.stop || !loop.trip.is_static() || loop.reverse || loop.trip.bound < 1 ||
        loop.trip.bound > std::numeric_limits<std::int32_t>::max() / 2 || loop.test.empty() || !is_all_done(loop))
      return std::nullopt;
    counter_ = loop.counter;
    const bool accepted = maps_only({grid_.body.begin(), first}, Phase::Before) &&
                          maps_only({std::next(first), grid_.body.end()}, Phase::After) &&
                          block(std::span(loop.test).first(loop.test.size() - 1)) && block(loop.body);
    if (!accepted || !memory()) return std::nullopt;
    return static_cast<std::size_t>(first - grid_.body.begin());
  }

  bool is_external(int buffer) const {
    return program_.buffers[static_cast<std::size_t>(buffer)].space != Space::Worker;
  }
  // Buffers that the loop writes; what they hold of a row lives until the row has finished.
  const std::set<int>& state() const { return state_; }
  // Of those, the numbers of results that are read and written row by row: (buffer, index of row 0) -> elements between rows.
  const std::map<std::pair<int, std::int64_t>, std::int64_t>& columns() const { return columns_; }

 private:
  struct Use {
    int buffer;
    Phase phase;
    bool is_store, is_column;
    std::int64_t stride, constant;
  };

  // stop = all rows done.
  bool is_all_done(const For& loop) const {
    const Map* map = std::get_if<Map>(&loop.test.back().node);
    if (map == nullptr || map->num_outer != 0 || map->dims.size() != 1 || rows_dim(*map, grid_.rows) != 0 ||
        map->instrs.size() != 3 || map->body_end != 1)
      return false;
    const Instr &load = map->instrs[0], &all = map->instrs[1], &store = map->instrs[2];
    return load.kind == Instr::Kind::Load && load.dtype == DType::Bool && !is_external(load.access.buffer) &&
           load.args[0] < 0 && load.access.indirect.empty() && load.access.index.coefficient(map->dims[0].var) != 0 &&
           all.kind == Instr::Kind::Reduced && all.op == ScalarOp::And && store.kind == Instr::Kind::Store &&
           store.access.buffer == loop.stop->buffer && store.access.index == loop.stop->index;
  }

  bool maps_only(std::span<const Stmt> statements, Phase phase) {
    return std::ranges::all_of(statements, [&](const Stmt& s) {
      const Map* m = std::get_if<Map>(&s.node);
      return m != nullptr && map(*m, phase);
    });
  }

  bool block(std::span<const Stmt> statements) {
    return std::ranges::all_of(statements, [&](const Stmt& s) {
      if (const auto* m = std::get_if<Map>(&s.node)) return map(*m, Phase::Loop);
      if (const auto* d = std::get_if<Dot>(&s.node)) return dot(*d);
      if (const auto* f = std::get_if<For>(&s.node)) {
        inner_.push_back(f);
        const bool accepted = f->trip.is_static() && block(f->test) && block(f->body);
        inner_.pop_back();
        return accepted;
      }
      return false;
    });
  }

  // Which iteration a row is in, or which block, must not be seen: it depends on what other rows did.
  bool has_known_vars(const Affine& index) const {
    return std::ranges::none_of(index.terms, [&](const Term& t) {
      return t.var == counter_ || t.var == grid_.block || t.var == grid_.rows || t.var == rows_var;
    });
  }

  bool map(const Map& map, Phase phase) {
    const int rows = rows_dim(map, grid_.rows);
    const Var row = rows < 0 ? -1 : map.dims[static_cast<std::size_t>(rows)].var;
    const bool reduces_rows = rows >= map.num_outer;
    for (std::size_t d = 0; d < map.dims.size(); ++d)
      if (!map.dims[d].extent.is_static() && static_cast<int>(d) != rows) return false;
    return std::ranges::all_of(map.instrs, [&](const Instr& in) {
      if (in.kind == Instr::Kind::Reduced && reduces_rows)  // of predicates, as a loop inside has it
        return phase == Phase::Loop && (in.op == ScalarOp::And || in.op == ScalarOp::Or) && in.dtype == DType::Bool;
      if (!has_index(in)) return true;
      const Affine& index = in.access.index;
      if (!has_known_vars(index)) return false;
      const std::int64_t of_batch = index.coefficient(grid_.row0), of_slot = row < 0 ? 0 : index.coefficient(row);
      if (of_batch != 0 && (of_batch != of_slot || reduces_rows)) return false;
      if (in.kind == Instr::Kind::Index) return of_batch == of_slot;
      const bool external = is_external(in.access.buffer);
      if (external ? of_batch != of_slot : of_batch != 0) return false;
      const bool is_store = in.kind == Instr::Kind::Store;
      if (is_store && of_slot == 0) {
        // What all rows share: prepared before the loop, or a flag that all rows of a loop inside are done.
        const bool flag = phase == Phase::Loop && reduces_rows && in.dtype == DType::Bool;
        if (external || (!flag && row >= 0)) return false;
        if (flag) return true;
        if (phase == Phase::Loop && !is_computed_anew(map, in)) return false;
      }
      // What no row is asked for: it must come from what is the same for all. A loop inside may run for no row at all.
      if (phase == Phase::Loop && row < 0 && !is_store && !external) read_alike_.insert(in.access.buffer);
      if (const auto it = computed_anew_in_.find(in.access.buffer);
          it != computed_anew_in_.end() && it->second != nullptr &&
          std::ranges::find(inner_, it->second) == inner_.end())
        return false;
      if (phase == Phase::Loop) touched_.insert(in.access.buffer);
      Use use{in.access.buffer, phase, is_store, false, of_slot, 0};
      if (external && of_batch != 0) {
        const Affine rest = index.without(grid_.row0).without(row);
        use.is_column = rest.terms.empty() && in.access.indirect.empty();
        use.constant = rest.constant;
      }
      uses_.push_back(use);
      return true;
    });
  }

  // A table that all rows share and that each iteration computes before it reads it, such as a unit matrix: which iteration a row is in
  // is not seen in it.
  bool is_computed_anew(const Map& map, const Instr& store) {
    const int buffer = store.access.buffer;
    if (computed_anew_in_.contains(buffer)) return true;
    std::int64_t points = 1;
    for (const Dim& dim : map.dims) points *= dim.extent.bound;
    const bool whole = map.num_outer == static_cast<int>(map.dims.size()) && store.args[1] < 0 &&
                       store.access.indirect.empty() && is_one_to_one(map, store.access.index) &&
                       points == program_.buffers[static_cast<std::size_t>(buffer)].elements;
    if (!whole || touched_.contains(buffer)) return false;
    computed_anew_in_[buffer] = inner_.empty() ? nullptr : inner_.back();
    return true;
  }
  // Each point stores elsewhere: rows of the table one after the other.
  static bool is_one_to_one(const Map& map, const Affine& index) {
    std::int64_t run = 1;
    Affine wanted;
    for (std::size_t d = map.dims.size(); d-- > 0;) {
      if (!map.dims[d].extent.is_static()) return false;
      wanted = wanted + Affine::of(map.dims[d].var, run);
      run *= map.dims[d].extent.bound;
    }
    return index == wanted;
  }

  bool dot(const Dot& dot) {
    const auto is_own = [&](const Access& a) {
      return has_known_vars(a.index) && a.index.coefficient(grid_.row0) == 0;
    };
    if (dot.m.var != grid_.rows || is_external(dot.c.buffer) || dot.c_m == 0 || !is_own(dot.c)) return false;
    if (dot.init && !is_own(*dot.init)) return false;
    uses_.push_back({dot.c.buffer, Phase::Loop, true, false, dot.c_m, 0});
    return std::ranges::all_of(dot.segments, [&](const DotSegment& s) {
      return is_own(s.a) && is_own(s.b) && std::ranges::all_of(s.k, [](const KDim& k) { return k.extent.is_static(); });
    });
  }

  bool memory() {
    std::set<int> tables;
    for (const Use& use : uses_) {
      if (use.phase == Phase::Loop && use.is_store) state_.insert(use.buffer);
      if (is_external(use.buffer) && !use.is_column) tables.insert(use.buffer);
    }
    for (const Use& use : uses_)
      if (use.is_store && use.stride != 0 && read_alike_.contains(use.buffer)) return false;
    for (const Use& use : uses_) {
      if (!state_.contains(use.buffer)) continue;
      if (use.phase == Phase::After && use.is_store) return false;
      if (is_external(use.buffer) && !tables.contains(use.buffer)) columns_[{use.buffer, use.constant}] = use.stride;
    }
    return true;
  }

  const Program& program_;
  const Grid& grid_;
  Var counter_ = -1;
  std::vector<Use> uses_;
  std::set<int> state_;
  std::vector<const For*> inner_;  // loops inside the one over iterations, around the statement that is looked at
  std::map<int, const For*> computed_anew_in_;  // buffers that all rows share -> the innermost loop that computes them
  std::set<int> touched_, read_alike_;          // buffers seen in the loop, and read by what knows of no row
  std::map<std::pair<int, std::int64_t>, std::int64_t> columns_;
};

class StreamRewriting {
 public:
  StreamRewriting(Program& program, Grid& grid, const StreamAnalysis& analysis, std::size_t loop_at)
      : program_(program), grid_(grid), analysis_(analysis), loop_at_(loop_at), slots_(grid.tile_rows) {}

  void run() {
    For loop = std::move(std::get<For>(grid_.body[loop_at_].node));
    length_ = loop.trip.bound;
    // Waiting costs what the slots that are done would have computed, refilling what is done once for all slots.
    Block once;
    for (std::size_t s = 0; s < grid_.body.size(); ++s)
      if (s != loop_at_) once.push_back(grid_.body[s]);
    const double bookkeeping_ns = 15 * estimate_ns(program_, {{Map{}}});
    const double iteration_ns = estimate_ns(program_, loop.test) + estimate_ns(program_, loop.body);
    worth_ = static_cast<std::int64_t>(std::clamp(
        std::ceil(static_cast<double>(slots_) * (estimate_ns(program_, once) + bookkeeping_ns) / iteration_ns), 1.0,
        16.0 * static_cast<double>(slots_)));

    make_buffers();
    Block before, after;
    for (std::size_t s = 0; s < grid_.body.size(); ++s) {
      if (s == loop_at_) continue;
      const Phase phase = s < loop_at_ ? Phase::Before : Phase::After;
      (phase == Phase::Before ? before : after).push_back({rewritten(std::get<Map>(grid_.body[s].node), phase)});
    }
    const Instr done = std::get<Map>(loop.test.back().node).instrs[0];
    const Var done_row = std::get<Map>(loop.test.back().node).dims[0].var;
    const auto done_at = [&](const Affine& slot) {
      return done.access.index.without(done_row) + slot * done.access.index.coefficient(done_row);
    };
    loop.test.pop_back();
    rewrite(loop.test);
    rewrite(loop.body);
    add_tally(loop.test, done.access.buffer, done_at, *loop.stop);
    const Var room = program_.new_var("room");
    loop.trip = {length_, room};

    For round;
    round.counter = program_.new_var("round");
    round.trip = {slots_ * grid_.tiles_per_block, -1};  // each one finishes a row at least
    round.stop = Access{over_, 0, {}};
    round.body = std::move(before);
    round.body.push_back({Let{room, {room_, 0, {}}, DType::I32, 1, length_}});
    round.body.push_back({std::move(loop)});
    round.body.push_back({find_finished(done.access.buffer, done_at)});
    for (Stmt& stmt : after) round.body.push_back(std::move(stmt));
    if (!columns_.empty()) round.body.push_back({put_columns()});
    deal(round.body);

    grid_.body = begin();
    grid_.body.push_back({std::move(round)});
    grid_.slots = slots_;
    grid_.tile_rows = slots_ * grid_.tiles_per_block;
    grid_.tiles_per_block = 1;
  }

 private:
  using Over = MapWriter::Over;
  static constexpr DType boolean = DType::Bool, integer = DType::I32;

  int new_buffer(const std::string& name, DType dtype, std::int64_t elements) {
    Buffer b;
    b.name = name;
    b.dtype = dtype;
    b.elements = elements;
    return program_.add_buffer(std::move(b));
  }

  void make_buffers() {
    row_ = new_buffer("slot_row", integer, slots_);
    age_ = new_buffer("slot_age", integer, slots_);
    live_ = new_buffer("slot_live", boolean, slots_);
    fresh_ = new_buffer("slot_fresh", boolean, slots_);
    finished_ = new_buffer("slot_finished", boolean, slots_);
    for (int& rank : ranks_) rank = new_buffer("slot_rank", integer, 2 * slots_);  // the first half stays zero
    next_ = new_buffer("next_row", integer, 1);
    ran_ = new_buffer("ran", integer, 1);
    idle_ = new_buffer("idle", integer, 1);
    worth_waiting_ = new_buffer("worth_waiting", integer, 1);
    room_ = new_buffer("room", integer, 1);
    over_ = new_buffer("over", boolean, 1);
    for (const auto& [key, stride] : analysis_.columns())
      columns_[key] = new_buffer("slot_result", program_.buffers[static_cast<std::size_t>(key.first)].dtype, slots_);
  }

  // ---- statements of the tile, over slots in place of rows ----

  Map rewritten(const Map& map, Phase phase) {
    const int rows = rows_dim(map, grid_.rows);
    if (rows < 0) return map;
    const Var row = map.dims[static_cast<std::size_t>(rows)].var;
    Map out = map;
    out.dims[static_cast<std::size_t>(rows)].extent = {slots_, -1};
    out.instrs.clear();
    std::vector<int> moved;
    std::map<int, int> held;  // registers of what is known of the slots; they end with the body
    const auto push = [&](const Instr& in) {
      out.instrs.push_back(in);
      return static_cast<int>(out.instrs.size()) - 1;
    };
    const auto of_slot = [&](int buffer, DType dtype) {
      const auto [it, is_new] = held.try_emplace(buffer, -1);
      if (is_new) it->second = push(load_instr(dtype, {buffer, Affine::of(row), {}}));
      return it->second;
    };
    const auto only_where = [&](Instr& store, int buffer) {
      const int where = of_slot(buffer, boolean);
      store.args[1] = store.args[1] < 0 ? where : push(op_instr(ScalarOp::And, boolean, store.args[1], where));
    };
    for (int i = 0; i < static_cast<int>(map.instrs.size()); ++i) {
      if (i == map.body_end) {
        out.body_end = static_cast<int>(out.instrs.size());
        held.clear();
      }
      Instr in = map.instrs[static_cast<std::size_t>(i)];
      for (int& arg : in.args)
        if (arg >= 0) arg = moved[static_cast<std::size_t>(arg)];
      for (Indirect& term : in.access.indirect) term.reg = moved[static_cast<std::size_t>(term.reg)];
      const int buffer = in.access.buffer;
      const std::int64_t stride = has_index(in) ? in.access.index.coefficient(grid_.row0) : 0;
      if (stride != 0 && in.kind == Instr::Kind::Index) {
        in.access.index = in.access.index.without(row);
        const std::uint64_t factor =
            size_of(in.dtype) == 8 ? static_cast<std::uint64_t>(stride) : static_cast<std::uint32_t>(stride);
        int local = of_slot(row_, integer);
        if (in.dtype != integer) local = push(op_instr(ScalarOp::Cast, in.dtype, local));
        local = push(op_instr(ScalarOp::Mul, in.dtype, local, push(const_instr(in.dtype, factor))));
        const int number = push(in);
        moved.push_back(push(op_instr(ScalarOp::Add, in.dtype, number, local)));
        continue;
      }
      if (stride != 0) {
        const Affine rest = in.access.index.without(grid_.row0).without(row);
        const auto column = rest.terms.empty() ? columns_.find({buffer, rest.constant}) : columns_.end();
        if (column != columns_.end()) {
          in.access = {column->second, Affine::of(row), {}};
        } else {
          in.access.index = in.access.index.without(row);
          in.access.indirect.push_back({of_slot(row_, integer), stride});
          // A slot whose row was cut off by the greatest number of iterations goes on until its round ends.
          if (phase == Phase::Loop && in.kind == Instr::Kind::Store) only_where(in, live_);
        }
      }
      if (in.kind == Instr::Kind::Store && phase == Phase::Before && analysis_.state().contains(buffer))
        only_where(in, fresh_);
      if (in.kind == Instr::Kind::Store && phase == Phase::After && analysis_.is_external(buffer))
        only_where(in, finished_);
      moved.push_back(push(in));
    }
    if (map.body_end == static_cast<int>(map.instrs.size())) out.body_end = static_cast<int>(out.instrs.size());
    return out;
  }

  void rewrite(Block& block) {
    for (Stmt& stmt : block) {
      if (auto* map = std::get_if<Map>(&stmt.node)) *map = rewritten(*map, Phase::Loop);
      if (auto* dot = std::get_if<Dot>(&stmt.node)) dot->m = {slots_, -1};
      if (auto* loop = std::get_if<For>(&stmt.node)) {
        rewrite(loop->test);
        rewrite(loop->body);
      }
    }
  }

  // ---- the slots ----

  // The first rows. Slots without one run along with the last row, for which nothing is stored.
  Block begin() {
    const Affine rows = Affine::of(grid_.rows);
    MapWriter first(program_, "first_rows", slots_);
    const Affine slot = first.point();
    const int number = first.index(slot, integer), all = first.index(rows, integer);
    const int last = first.index(rows + Affine(-1), integer), zero = first.constant(integer, 0);
    first.store(row_, slot, integer, first.op(ScalarOp::Min, integer, number, last));
    first.store(age_, slot, integer, zero);
    first.store(live_, slot, boolean, first.op(ScalarOp::Lt, boolean, number, all));
    first.store(fresh_, slot, boolean, first.constant(boolean, 1));
    for (const int rank : ranks_) first.store(rank, slot, integer, zero);

    MapWriter rest(program_, "first_round", 1, Over::Once);
    const int dealt = rest.constant(integer, static_cast<std::uint64_t>(slots_)), count = rest.index(rows, integer);
    const int next = rest.op(ScalarOp::Min, integer, dealt, count), none = rest.constant(integer, 0);
    rest.store(next_, 0, integer, next);
    rest.store(ran_, 0, integer, none);
    rest.store(idle_, 0, integer, none);
    rest.store(worth_waiting_, 0, integer, how_long(rest, next, count));
    rest.store(room_, 0, integer, rest.constant(integer, static_cast<std::uint64_t>(length_)));
    rest.store(over_, 0, boolean, rest.constant(boolean, 0));
    return {{first.finish()}, {rest.finish()}};
  }

  // Iterations of done slots after which they are refilled; without further rows there is nothing to wait for.
  int how_long(MapWriter& writer, int next, int rows) const {
    const int worth = writer.constant(integer, static_cast<std::uint64_t>(worth_));
    const int ever = writer.constant(integer, std::numeric_limits<std::int32_t>::max() / 8);
    return writer.op(ScalarOp::Select, integer, writer.op(ScalarOp::Lt, boolean, next, rows), worth, ever);
  }

  // Ends the round when all slots are done, or enough of them for long enough.
  template <class At> void add_tally(Block& test, int done, const At& done_at, const Access& stop) {
    // Where the predicate is one Map over the slots, it counts as well.
    const Map* last = test.empty() ? nullptr : std::get_if<Map>(&test.back().node);
    const Instr* store = last != nullptr && !last->instrs.empty() ? &last->instrs.back() : nullptr;
    const bool joins = store != nullptr && last->dims.size() == 1 && last->num_outer == 1 && last->vector_dim == 0 &&
                       last->dims[0].extent == Extent{slots_, -1} && store->kind == Instr::Kind::Store &&
                       store->args[1] < 0 && store->access.buffer == done && store->access.indirect.empty() &&
                       store->access.index == done_at(Affine::of(last->dims[0].var));
    const int known = joins ? store->args[0] : -1;
    MapWriter w = joins ? MapWriter(*last) : MapWriter(program_, "tally", slots_, Over::Reduction);
    if (joins) test.pop_back();
    const Affine slot = w.point();
    const int is_done = joins ? known : w.load(done, done_at(slot), boolean), live = w.load(live_, slot, boolean);
    const int waits = w.op(ScalarOp::Or, boolean, is_done, w.op(ScalarOp::Not, boolean, live));
    const int one = w.constant(integer, 1), zero = w.constant(integer, 0);
    const int count = w.reduced(ScalarOp::Add, integer, w.op(ScalarOp::Select, integer, waits, one, zero));
    const int idle = w.op(ScalarOp::Min, integer, w.op(ScalarOp::Add, integer, w.load(idle_, 0, integer), count),
                          w.constant(integer, std::numeric_limits<std::int32_t>::max() / 16));
    const int all = w.op(ScalarOp::Eq, boolean, count, w.constant(integer, static_cast<std::uint64_t>(slots_)));
    // Where many have finished at once, as neighbours in an ordered ensemble do, the others soon follow: they take their next rows together.
    const int worth = w.load(worth_waiting_, 0, integer);
    const int are_few = w.op(ScalarOp::Le, boolean, count, w.constant(integer, static_cast<std::uint64_t>(slots_ / 3)));
    const int long_ago = w.op(ScalarOp::Ge, boolean, idle, w.op(ScalarOp::Mul, integer, worth, w.constant(integer, 8)));
    const int enough = w.op(ScalarOp::And, boolean, w.op(ScalarOp::Ge, boolean, idle, worth),
                            w.op(ScalarOp::Or, boolean, are_few, long_ago));
    const int ends = w.op(ScalarOp::Or, boolean, all, enough);
    const int runs = w.op(ScalarOp::Select, integer, ends, w.constant(integer, 0), w.constant(integer, 1));
    w.store(idle_, 0, integer, idle);
    w.store(ran_, 0, integer, w.op(ScalarOp::Add, integer, w.load(ran_, 0, integer), runs));
    w.store(stop.buffer, stop.index, boolean, ends);
    test.push_back({w.finish()});
  }

  // Rows that are done or have had all iterations.
  template <class At> Map find_finished(int done, const At& done_at) {
    MapWriter w(program_, "finished", slots_);
    const Affine slot = w.point();
    const int age = w.op(ScalarOp::Add, integer, w.load(age_, slot, integer), w.load(ran_, 0, integer));
    const int old = w.op(ScalarOp::Ge, boolean, age, w.constant(integer, static_cast<std::uint64_t>(length_)));
    const int ends = w.op(ScalarOp::Or, boolean, w.load(done, done_at(slot), boolean), old);
    const int finished = w.op(ScalarOp::And, boolean, w.load(live_, slot, boolean), ends);
    w.store(age_, slot, integer, age);
    w.store(finished_, slot, boolean, finished);
    w.store(ranks_[0], slot + Affine(slots_), integer,
            w.op(ScalarOp::Select, integer, finished, w.constant(integer, 1), w.constant(integer, 0)));
    return w.finish();
  }

  // Results that the loop keeps with the slots go where their rows are.
  Map put_columns() {
    MapWriter w(program_, "results", slots_);
    const Affine slot = w.point();
    std::vector<std::pair<int, std::pair<int, std::int64_t>>> values;
    const int row = w.load(row_, slot, integer), where = w.load(finished_, slot, boolean);
    for (const auto& [key, column] : columns_)
      values.emplace_back(w.load(column, slot, program_.buffers[static_cast<std::size_t>(column)].dtype), key);
    for (const auto& [value, key] : values) {
      const std::int64_t stride = analysis_.columns().at(key);
      w.store({key.first, Affine::of(grid_.row0, stride) + Affine(key.second), {{row, stride}}},
              program_.buffers[static_cast<std::size_t>(key.first)].dtype, value, where);
    }
    return w.finish();
  }

  // Slots of finished rows take the next rows, in the order of the slots.
  void deal(Block& block) {
    // How many slots have finished up to each: sums of four, of sixteen, ...
    int from = ranks_[0], to = ranks_[1];
    for (std::int64_t apart = 1; apart < slots_; apart *= 4) {
      MapWriter w(program_, "rank", slots_);
      const Affine slot = w.point();
      int sum = w.load(from, slot + Affine(slots_), integer);
      for (std::int64_t before = apart; before < std::min(4 * apart, slots_); before += apart)
        sum = w.op(ScalarOp::Add, integer, sum, w.load(from, slot + Affine(slots_ - before), integer));
      w.store(to, slot + Affine(slots_), integer, sum);
      block.push_back({w.finish()});
      std::swap(from, to);
    }
    MapWriter w(program_, "deal", slots_);
    const Affine slot = w.point();
    const int finished = w.load(finished_, slot, boolean), live = w.load(live_, slot, boolean);
    const int rank = w.load(from, slot + Affine(slots_), integer);
    const int next = w.op(ScalarOp::Add, integer, w.load(next_, 0, integer),
                          w.op(ScalarOp::Sub, integer, rank, w.constant(integer, 1)));
    const int is_left = w.op(ScalarOp::Lt, boolean, next, w.index(Affine::of(grid_.rows), integer));
    const int fresh = w.op(ScalarOp::And, boolean, finished, is_left);
    const int stays = w.op(ScalarOp::And, boolean, live, w.op(ScalarOp::Not, boolean, finished));
    w.store(row_, slot, integer, w.op(ScalarOp::Select, integer, fresh, next, w.load(row_, slot, integer)));
    w.store(age_, slot, integer,
            w.op(ScalarOp::Select, integer, fresh, w.constant(integer, 0), w.load(age_, slot, integer)));
    w.store(fresh_, slot, boolean, fresh);
    w.store(live_, slot, boolean, w.op(ScalarOp::Or, boolean, stays, fresh));
    block.push_back({w.finish()});

    MapWriter r(program_, "next_round", slots_, Over::Reduction);
    const Affine place = r.point();
    const int runs = r.load(live_, place, boolean);
    const int age = r.op(ScalarOp::Select, integer, runs, r.load(age_, place, integer), r.constant(integer, 0));
    const int any = r.reduced(ScalarOp::Or, boolean, runs), oldest = r.reduced(ScalarOp::Max, integer, age);
    const int rows = r.index(Affine::of(grid_.rows), integer), zero = r.constant(integer, 0);
    const int taken =
        r.op(ScalarOp::Add, integer, r.load(next_, 0, integer), r.load(from, Affine(2 * slots_ - 1), integer));
    const int left = r.op(ScalarOp::Min, integer, taken, rows);
    const int length = r.constant(integer, static_cast<std::uint64_t>(length_));
    r.store(next_, 0, integer, left);
    r.store(worth_waiting_, 0, integer, how_long(r, left, rows));
    r.store(room_, 0, integer, r.op(ScalarOp::Sub, integer, length, oldest));
    r.store(over_, 0, boolean, r.op(ScalarOp::Not, boolean, any));
    r.store(idle_, 0, integer, zero);
    r.store(ran_, 0, integer, zero);
    block.push_back({r.finish()});
  }

  Program& program_;
  Grid& grid_;
  const StreamAnalysis& analysis_;
  std::size_t loop_at_;
  std::int64_t slots_, length_ = 0, worth_ = 0;
  int row_ = -1, age_ = -1, live_ = -1, fresh_ = -1, finished_ = -1, ranks_[2] = {-1, -1};
  int next_ = -1, ran_ = -1, idle_ = -1, worth_waiting_ = -1, room_ = -1, over_ = -1;
  std::map<std::pair<int, std::int64_t>, int> columns_;
};

void stream_block(Program& program, Block& block) {
  for (Stmt& stmt : block) {
    if (auto* loop = std::get_if<For>(&stmt.node)) stream_block(program, loop->body);
    if (auto* grid = std::get_if<Grid>(&stmt.node)) {
      StreamAnalysis analysis(program, *grid);
      if (const auto loop_at = analysis.run()) StreamRewriting(program, *grid, analysis, *loop_at).run();
    }
  }
}

}  // namespace

void stream_lanes(Program& program) { stream_block(program, program.body); }

}  // namespace hotloop::kernel
