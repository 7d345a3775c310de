#include "schedule/stream_lanes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "schedule/cost.h"
#include "schedule/map_writer.h"
#include "schedule/registers.h"
#include "schedule/stream_plan.h"

namespace hotloop::kernel {
namespace {

enum class Phase { Before, Loop, After };  // of a tile's statements

class StreamRewriting {
 public:
  StreamRewriting(Program& program, Grid& grid, const StreamPlan& plan)
      : program_(program), grid_(grid), plan_(plan), slots_(grid.tile_rows) {}

  void run() {
    For loop = std::move(std::get<For>(grid_.body[plan_.loop_at].node));
    length_ = loop.trip.bound;
    // Waiting costs what the slots that are done would have computed, refilling what is done once for all slots.
    Block once;
    for (std::size_t s = 0; s < grid_.body.size(); ++s)
      if (s != plan_.loop_at) once.push_back(grid_.body[s]);
    const double bookkeeping_ns = 15 * estimate_ns(program_, {{Map{}}});
    const double iteration_ns = estimate_ns(program_, loop.test) + estimate_ns(program_, loop.body);
    worth_ = static_cast<std::int64_t>(std::clamp(
        std::ceil(static_cast<double>(slots_) * (estimate_ns(program_, once) + bookkeeping_ns) / iteration_ns), 1.0,
        16.0 * static_cast<double>(slots_)));

    make_buffers();
    Block before, after;
    for (std::size_t s = 0; s < grid_.body.size(); ++s) {
      if (s == plan_.loop_at) continue;
      const Phase phase = s < plan_.loop_at ? Phase::Before : Phase::After;
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
    for (const auto& [key, stride] : plan_.columns)
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
      renumber(in, moved);
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
      if (in.kind == Instr::Kind::Store && phase == Phase::Before && plan_.state.contains(buffer))
        only_where(in, fresh_);
      if (in.kind == Instr::Kind::Store && phase == Phase::After && is_external(program_, buffer))
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
      const std::int64_t stride = plan_.columns.at(key);
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
  const StreamPlan& plan_;
  std::int64_t slots_, length_ = 0, worth_ = 0;
  int row_ = -1, age_ = -1, live_ = -1, fresh_ = -1, finished_ = -1, ranks_[2] = {-1, -1};
  int next_ = -1, ran_ = -1, idle_ = -1, worth_waiting_ = -1, room_ = -1, over_ = -1;
  std::map<std::pair<int, std::int64_t>, int> columns_;
};

void stream_block(Program& program, Block& block) {
  for (Stmt& stmt : block) {
    if (auto* loop = std::get_if<For>(&stmt.node)) stream_block(program, loop->body);
    if (auto* grid = std::get_if<Grid>(&stmt.node)) {
      if (const auto plan = plan_stream(program, *grid)) StreamRewriting(program, *grid, *plan).run();
    }
  }
}

}  // namespace

void stream_lanes(Program& program) { stream_block(program, program.body); }

}  // namespace hotloop::kernel
