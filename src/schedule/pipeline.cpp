#include "schedule/pipeline.h"

#include <algorithm>
#include <set>
#include <utility>

#include "schedule/accesses.h"
#include "schedule/cost.h"
#include "schedule/loop_facts.h"
#include "schedule/sections.h"

namespace hotloop::kernel {
namespace {

// The statement for steps first..first+steps-1 of `trip`, in each way in which it goes along them.
std::vector<Stmt> chunks_of(const Stmt& stmt, std::int64_t trip, bool reverse, const Extent& steps, Var first) {
  std::vector<Stmt> ways;
  if (const For* loop = plain_loop(stmt)) {
    if (loop->trip.bound != trip || loop->reverse != reverse) return ways;
    ways.push_back({steps_of(*loop, Affine::of(first), steps)});
  } else if (const auto* dot = std::get_if<Dot>(&stmt.node)) {
    // Rows in panels are not cut within these.
    if (!dot->m.is_static() || dot->m.bound != trip || dot->in_blocks) return ways;
    ways.push_back(stmt);
    auto& part = std::get<Dot>(ways[0].node);
    part.m = steps;
    const auto move = [&](Access& a, std::int64_t by) {
      if (by != 0) a.index = a.index + Affine::of(first, by);
    };
    for (DotSegment& s : part.segments) move(s.a, s.a_m);
    if (part.init) move(*part.init, part.init_m);
    move(part.c, part.c_m);
  } else if (const auto* map = std::get_if<Map>(&stmt.node)) {
    for (int d = 0; d < map->num_outer; ++d) {
      const Dim& dim = map->dims[static_cast<std::size_t>(d)];
      if (!dim.extent.is_static() || dim.extent.bound != trip) continue;
      ways.push_back({steps_of(*map, d, Affine::of(first), steps)});
    }
  }
  return ways;
}

// Follows the items from a loop on and puts each where it may be: before, into a section, or after.
class Builder {
 public:
  Builder(Program& program, const std::vector<Item>& items, const std::vector<std::vector<std::size_t>>& depends_on,
          std::size_t begin, std::int64_t chunk)
      : program_(program), items_(items), depends_on_(depends_on), place_(items.size(), Place{Kind::Before}) {
    const For& loop = *plain_loop(items[begin].stmt);
    result_.begin = begin;
    all().trip = loop.trip.bound;
    all().chunk = chunk;
    all().reverse = loop.reverse;
  }

  // Nothing where fewer than two loops follow each other.
  std::optional<Pipeline> run() {
    for (std::size_t i = result_.begin; i < items_.size(); ++i) add(i);
    // What comes after the last loop of its section need not wait for rounds.
    int num_loops = 0;
    for (std::size_t s = 0; s < stages_.size(); ++s) num_loops += stages_[s].has_loop;
    if (num_loops < 2) return std::nullopt;
    std::vector<Section> sections;
    result_.section_of.assign(items_.size(), -1);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (!stages_[s].has_loop && !stages_[s].is_followed) {
        for (const std::size_t i : stages_[s].items) place_[i].kind = Kind::After;
        continue;
      }
      for (const std::size_t i : stages_[s].items) result_.section_of[i] = static_cast<int>(sections.size());
      sections.push_back(std::move(all().sections[s]));
    }
    all().sections = std::move(sections);
    for (std::size_t i = result_.begin; i < items_.size(); ++i) {
      if (place_[i].kind == Kind::Before) result_.before.push_back(i);
      if (place_[i].kind == Kind::After) result_.after.push_back(i);
    }
    if (all().num_rounds() < 2 || broken_rule(program_, all())) return std::nullopt;
    return std::move(result_);
  }

 private:
  enum class Kind { Before, Inside, After };
  struct Place {
    Kind kind = Kind::Before;
    std::size_t stage = 0;
  };
  struct Stage {
    std::vector<std::size_t> items;
    std::vector<Touch> touches;
    bool has_loop = false, is_followed = false;  // the second: by another stage
  };
  Sections& all() { return result_.sections; }

  void add(std::size_t i) {
    std::set<std::size_t> before;  // the stages that it depends on
    bool waits = false;
    for (const std::size_t on : depends_on_[i]) {
      if (on < result_.begin) continue;
      waits |= place_[on].kind == Kind::After;
      if (place_[on].kind == Kind::Inside) before.insert(place_[on].stage);
    }
    const For* loop = plain_loop(items_[i].stmt);
    const bool runs_along = loop != nullptr && loop->trip.bound == all().trip && loop->reverse == all().reverse;
    if (!waits && before.empty() && !runs_along) return;
    if (!waits && put(i, before, loop != nullptr)) return;
    place_[i].kind = Kind::After;
  }

  // Into the last section, if it is without a loop as yet and the item depends on it, or into one of its own.
  bool put(std::size_t i, const std::set<std::size_t>& before, bool is_loop) {
    const bool joins = !stages_.empty() && !stages_.back().has_loop && before.contains(stages_.size() - 1);
    const std::size_t stage = joins ? stages_.size() - 1 : stages_.size();
    std::int64_t delay = joins ? all().sections[stage].delay : 0;
    for (const std::size_t s : before)
      if (s != stage) delay = std::max(delay, all().sections[s].delay + 1);
    Section section;
    if (joins) {
      section = all().sections[stage];
    } else {
      section.first = program_.new_var("first");
      section.steps = program_.new_var("steps");
    }
    section.delay = delay;
    for (Stmt& way :
         chunks_of(items_[i].stmt, all().trip, all().reverse, {all().chunk, section.steps}, section.first)) {
      std::vector<Touch> touches = touches_of(way, section.first);
      if (!follows(touches, before, stage)) continue;
      section.body.push_back(std::move(way));
      if (!joins) {
        all().sections.emplace_back();
        stages_.emplace_back();
      }
      all().sections[stage] = std::move(section);
      stages_[stage].items.push_back(i);
      stages_[stage].has_loop |= is_loop;
      stages_[stage].touches.insert(stages_[stage].touches.end(), touches.begin(), touches.end());
      place_[i] = {Kind::Inside, stage};
      for (const std::size_t s : before) stages_[s].is_followed |= s != stage;
      return true;
    }
    return false;
  }

  // Also in its own section: a chunk may take up what earlier chunks of it left, and nothing of later ones.
  bool follows(const std::vector<Touch>& touches, const std::set<std::size_t>& before, std::size_t stage) {
    const auto by_chunks = [&](const std::vector<Touch>& earlier) {
      return std::ranges::all_of(touches, [&](const Touch& b) {
        return std::ranges::all_of(earlier, [&](const Touch& a) {
          return (!a.writes && !b.writes) || follows_by_chunks(b, a, all().chunk, all().num_chunks(), all().reverse);
        });
      });
    };
    return std::ranges::all_of(before, [&](std::size_t s) { return by_chunks(stages_[s].touches); }) &&
           (stage >= stages_.size() || by_chunks(stages_[stage].touches));
  }

  Program& program_;
  const std::vector<Item>& items_;
  const std::vector<std::vector<std::size_t>>& depends_on_;
  std::vector<Place> place_;
  std::vector<Stage> stages_;
  Pipeline result_;
};

}  // namespace

void set_variable(Block& block, Var var, std::int64_t value) {
  replace_variable(block, var, Affine(value), [&](Extent& extent) { extent = {value, -1}; });
}

std::optional<Pipeline> find_pipeline(Program& program, const std::vector<Item>& items,
                                      const std::vector<std::vector<std::size_t>>& depends_on, int num_workers,
                                      double join_ns) {
  constexpr std::int64_t fewest_chunks = 4, largest_chunk = 64;
  const TeamCost team{.wake_ns = 0, .join_ns = join_ns, .shared_ns_per_byte = 0, .passed_ns_per_byte = 0};
  for (std::size_t begin = 0; begin < items.size(); ++begin) {
    const For* loop = plain_loop(items[begin].stmt);
    if (loop == nullptr || loop->trip.bound < fewest_chunks) continue;
    const auto build = [&](std::int64_t chunk) { return Builder(program, items, depends_on, begin, chunk).run(); };
    const std::size_t num_vars = program.vars.size();
    std::int64_t best_chunk = 0;
    double least = 0;
    for (std::int64_t chunk = 1; chunk <= std::min(largest_chunk, loop->trip.bound / fewest_chunks); chunk *= 2) {
      const auto found = build(chunk);
      program.vars.resize(num_vars);
      if (!found) break;
      Program alone;  // only the sections
      alone.target = program.target;
      alone.buffers = program.buffers;
      alone.max_rows = program.max_rows;
      alone.body.push_back({found->sections});
      if (const double ns = estimate_time_ns(alone, program.max_rows, num_workers, team);
          best_chunk == 0 || ns < least) {
        least = ns;
        best_chunk = chunk;
      }
    }
    if (best_chunk == 0) continue;
    auto best = build(best_chunk);
    double in_order = 0;
    std::vector<bool> outside(items.size());
    for (const auto* list : {&best->before, &best->after})
      for (const std::size_t i : *list) outside[i] = true;
    for (std::size_t i = begin; i < items.size(); ++i)
      if (!outside[i]) in_order += items[i].ns;
    if (least + 2 * join_ns < in_order) return best;
    program.vars.resize(num_vars);
  }
  return std::nullopt;
}

}  // namespace hotloop::kernel
