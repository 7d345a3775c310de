#include "schedule/stream_plan.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "schedule/accesses.h"

namespace hotloop::kernel {
namespace {

enum class Phase { Before, Loop, After };  // of a tile's statements

class StreamAnalysis {
 public:
  StreamAnalysis(const Program& program, const Grid& grid) : program_(program), grid_(grid) {}

  std::optional<StreamPlan> run() {
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
    plan_.loop_at = static_cast<std::size_t>(first - grid_.body.begin());
    return std::move(plan_);
  }

 private:
  bool is_external(int buffer) const { return kernel::is_external(program_, buffer); }

  struct RowUse {
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
        const bool accepted = f->trip.is_static() && block(f->test) && block(f->body) &&
                              (!f->stop || (has_known_vars(f->stop->index) && is_seen(f->stop->buffer, true)));
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
      if (phase == Phase::Loop && !is_seen(in.access.buffer, !is_store && of_slot == 0)) return false;
      RowUse use{in.access.buffer, phase, is_store, false, of_slot, 0};
      if (external && of_batch != 0) {
        const Affine rest = index.without(grid_.row0).without(row);
        use.is_column = rest.terms.empty() && in.access.indirect.empty();
        use.constant = rest.constant;
      }
      uses_.push_back(use);
      return true;
    });
  }

  // Takes note of an access in the loop, `alike` if it reads the same for all rows: that must come from what is the same for all. A loop inside may
  // run for no row at all, so that what is computed in it may be asked for only there.
  bool is_seen(int buffer, bool alike) {
    touched_.insert(buffer);
    if (alike) read_alike_.insert(buffer);
    const auto computed = computed_anew_in_.find(buffer);
    return computed == computed_anew_in_.end() || computed->second == nullptr ||
           std::ranges::find(inner_, computed->second) != inner_.end();
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
    if (dot.m.var != grid_.rows) return false;
    bool accepted = std::ranges::all_of(dot.segments, [](const DotSegment& s) {
      return std::ranges::all_of(s.k, [](const KDim& k) { return k.extent.is_static(); });
    });
    for_each_access(dot, [&](const Use& use) {
      const int buffer = use.access->buffer;
      const Affine& index = use.access->index;
      std::int64_t of_slot = 0;
      for (const auto& stride : use.strides)
        if (stride.extent.var == grid_.rows) of_slot = *stride.elements;
      const bool is_own = has_known_vars(index) && index.coefficient(grid_.row0) == 0;
      const bool is_written_by_rows = of_slot != 0 && !is_external(buffer);
      accepted =
          accepted && is_own && (!use.writes || is_written_by_rows) && is_seen(buffer, !use.writes && of_slot == 0);
      uses_.push_back({buffer, Phase::Loop, use.writes, false, of_slot, 0});
    });
    return accepted;
  }

  bool memory() {
    std::set<int> tables;
    for (const RowUse& use : uses_) {
      if (use.phase == Phase::Loop && use.is_store) plan_.state.insert(use.buffer);
      if (is_external(use.buffer) && !use.is_column) tables.insert(use.buffer);
    }
    for (const RowUse& use : uses_)
      if (use.is_store && use.stride != 0 && read_alike_.contains(use.buffer)) return false;
    for (const RowUse& use : uses_) {
      if (!plan_.state.contains(use.buffer)) continue;
      if (use.phase == Phase::After && use.is_store) return false;
      if (is_external(use.buffer) && !tables.contains(use.buffer))
        plan_.columns[{use.buffer, use.constant}] = use.stride;
    }
    return true;
  }

  const Program& program_;
  const Grid& grid_;
  Var counter_ = -1;
  std::vector<RowUse> uses_;
  std::vector<const For*> inner_;  // loops inside the one over iterations, around the statement that is looked at
  std::map<int, const For*> computed_anew_in_;  // buffers that all rows share -> the innermost loop that computes them
  std::set<int> touched_, read_alike_;          // buffers seen in the loop, and read by what knows of no row
  StreamPlan plan_;
};

}  // namespace

int rows_dim(const Map& map, Var rows) {
  for (std::size_t d = 0; d < map.dims.size(); ++d)
    if (map.dims[d].extent.var == rows) return static_cast<int>(d);
  return -1;
}

std::optional<StreamPlan> plan_stream(const Program& program, const Grid& grid) {
  return StreamAnalysis(program, grid).run();
}

}  // namespace hotloop::kernel
