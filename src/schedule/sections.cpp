#include "schedule/sections.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/cancel.h"
#include "schedule/change_places.h"
#include "schedule/cost.h"
#include "schedule/footprint.h"
#include "schedule/memory_plan.h"
#include "schedule/phases.h"
#include "schedule/pipeline.h"

namespace hotloop::kernel {
namespace {

// Of the statements looked at together: comparing all with all takes time.
constexpr std::size_t most_at_once = 128;
constexpr int most_sections = 16;

// Which section wrote what lies in the shared arena.
class Homes {
 public:
  explicit Homes(const Program& program) : program_(program), section_(program.buffers.size(), nowhere) {}
  void write(const std::vector<Touch>& touches, std::size_t section) {
    for (const Touch& t : touches)
      if (t.writes && buffer(t.buffer).space == Space::Shared) section_[static_cast<std::size_t>(t.buffer)] = section;
  }
  std::size_t find(int index) const { return section_[static_cast<std::size_t>(index)]; }
  std::int64_t bytes(int index) const { return bytes_of(buffer(index)); }

 private:
  static constexpr std::size_t nowhere = std::size_t(-1);
  const Buffer& buffer(int index) const { return program_.buffers[static_cast<std::size_t>(index)]; }
  const Program& program_;
  std::vector<std::size_t> section_;
};

// Statements that one worker would run in order.
class Cut {
 public:
  Cut(Program& program, Homes& homes, std::vector<Item> items, int num_workers, double join_ns)
      : program_(program), homes_(homes), items_(std::move(items)), num_workers_(num_workers), join_ns_(join_ns) {
    depends_.resize(items_.size());
    for (std::size_t j = 0; j < items_.size(); ++j)
      for (std::size_t i = 0; i < j; ++i)
        if (conflict(items_[i].touches, items_[j].touches)) depends_[j].push_back(i);
  }

  // Appends them, as sections where that is a gain. Says whether there are any.
  bool append_to(Block& outside, bool pipelines) {
    if (pipelines)
      if (auto found = find_pipeline(program_, items_, depends_, num_workers_, join_ns_)) {
        std::vector<std::size_t> first(found->begin);
        std::iota(first.begin(), first.end(), std::size_t{0});
        first.insert(first.end(), found->before.begin(), found->before.end());
        settle(*found);
        prepare(*found, first, outside);
        // Rows pass from section to section; whoever writes them last has them.
        for (std::size_t s = 0; s < found->sections.sections.size(); ++s)
          homes_.write(touches_of(found->sections.sections[s].body), s);
        outside.push_back({std::move(found->sections)});
        outside.push_back({Barrier{}});
        rest(found->after).append_to(outside, true);
        return true;
      }
    choose_windows();
    std::size_t at = 0;
    Single single;
    bool any = false;
    const auto flush = [&] {
      if (single.body.empty()) return;
      outside.push_back({std::exchange(single, {})});
      outside.push_back({Barrier{}});
    };
    while (at < items_.size()) {
      if (const std::size_t begin = at; window_from_[begin] > begin) {
        at = window_from_[begin];
        flush();
        outside.push_back({sections_of(begin, at)});
        outside.push_back({Barrier{}});
        any = true;
      } else {
        homes_.write(items_[at].touches, 0);
        single.body.push_back(std::move(items_[at++].stmt));
      }
    }
    flush();
    return any;
  }

 private:
  Cut rest(const std::vector<std::size_t>& which) {
    std::vector<Item> items;
    for (const std::size_t i : which) items.push_back(std::move(items_[i]));
    return Cut(program_, homes_, std::move(items), num_workers_, join_ns_);
  }

  // The sections of a pipeline in such an order that each runs where what it touches lies.
  void settle(Pipeline& pipeline) const {
    const std::size_t n = pipeline.sections.sections.size();
    std::vector<Section> sections(n);
    std::vector<int> moved(n);
    std::vector<bool> taken(n);
    for (std::size_t s = 0; s < n; ++s) {
      Section& section = pipeline.sections.sections[s];
      const std::size_t place = place_of(touches_of(section.body), taken);
      taken[place] = true;
      moved[s] = static_cast<int>(place);
      sections[place] = std::move(section);
    }
    pipeline.sections.sections = std::move(sections);
    for (int& s : pipeline.section_of)
      if (s >= 0) s = moved[static_cast<std::size_t>(s)];
  }

  // What is done before a pipeline. Whoever runs a section makes what it alone reads, packed weights above all.
  void prepare(const Pipeline& pipeline, const std::vector<std::size_t>& first, Block& outside) {
    constexpr int nobody = -1, several = -2;
    std::vector<int> reader(items_.size(), nobody);
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (pipeline.section_of[i] >= 0) reader[i] = pipeline.section_of[i];
    for (const std::size_t i : pipeline.after) reader[i] = several;
    for (std::size_t i = items_.size(); i-- > 0;) {
      if (reader[i] == nobody) reader[i] = several;
      for (const std::size_t on : depends_[i])
        if (pipeline.section_of[on] < 0 && reader[on] != reader[i])
          reader[on] = reader[on] == nobody ? reader[i] : several;
    }
    std::vector<std::size_t> shared;
    Sections own;
    own.sections.resize(pipeline.sections.sections.size());
    for (const std::size_t i : first) {
      if (reader[i] < 0) {
        shared.push_back(i);
        continue;
      }
      homes_.write(items_[i].touches, static_cast<std::size_t>(reader[i]));
      own.sections[static_cast<std::size_t>(reader[i])].body.push_back(items_[i].stmt);
    }
    rest(shared).append_to(outside, false);
    if (std::ranges::all_of(own.sections, [](const Section& s) { return s.body.empty(); })) return;
    outside.push_back({std::move(own)});
    outside.push_back({Barrier{}});
  }

  // The windows of statements, one after the other, whose independent parts gain most by running at once.
  void choose_windows() {
    const std::size_t n = items_.size();
    std::vector<double> gain(n + 1, 0.0);  // of the statements before
    std::vector<std::size_t> begin_of(n + 1);
    for (std::size_t end = 0; end <= n; ++end) begin_of[end] = end;  // no window ends there
    // gain[] of all ends before `begin` must be final, so windows are tried by their beginning.
    for (std::size_t begin = 0; begin < n; ++begin) {
      if (begin > 0 && gain[begin - 1] >= gain[begin]) {
        gain[begin] = gain[begin - 1];
        begin_of[begin] = begin;
      }
      Parts parts(begin);
      for (std::size_t end = begin + 1; end <= n; ++end) {
        parts.add(end - 1, depends_[end - 1], items_[end - 1].ns);
        // At best each has the same share of the work.
        const double most = gain[begin] + parts.total() * (1 - 1.0 / num_bins()) - 2 * join_ns_;
        if (parts.count() < 2 || most <= gain[end]) continue;
        const double won = gain[begin] + parts.total() - longest(parts.costs()) - 2 * join_ns_;
        if (won > gain[end] + 1e-9) {
          gain[end] = won;
          begin_of[end] = begin;
        }
      }
    }
    if (n > 0 && gain[n - 1] >= gain[n]) {
      gain[n] = gain[n - 1];
      begin_of[n] = n;
    }
    window_from_.assign(n, 0);
    for (std::size_t end = n; end > 0;) {
      const std::size_t begin = begin_of[end];
      if (begin < end) window_from_[begin] = end;
      end = begin < end ? begin : end - 1;
    }
  }

  // The connected parts of statements from `begin` on.
  class Parts {
   public:
    explicit Parts(std::size_t begin) : begin_(begin) {}
    void add(std::size_t item, const std::vector<std::size_t>& depends_on, double ns) {
      parent_.push_back(item - begin_);
      ns_.push_back(ns);
      total_ += ns;
      ++count_;
      for (const std::size_t other : depends_on) {
        if (other < begin_) continue;
        const std::size_t a = find(item), b = find(other);
        if (a == b) continue;
        parent_[a] = b;
        ns_[b] += ns_[a];
        --count_;
      }
    }
    std::size_t find(std::size_t item) {
      std::size_t at = item - begin_;
      while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
      return at;
    }
    std::size_t count() const { return count_; }
    double total() const { return total_; }
    std::vector<double> costs() const {
      std::vector<double> all;
      for (std::size_t i = 0; i < parent_.size(); ++i)
        if (parent_[i] == i) all.push_back(ns_[i]);
      return all;
    }

   private:
    std::size_t begin_, count_ = 0;
    double total_ = 0;
    std::vector<std::size_t> parent_;
    std::vector<double> ns_;  // of a part, at its root
  };

  int num_bins() const { return std::min(num_workers_, most_sections); }

  // The longest part first, each to who has least.
  double longest(std::vector<double> costs) const {
    std::ranges::sort(costs, std::greater<>());
    std::vector<double> bins(static_cast<std::size_t>(num_bins()));
    for (const double ns : costs) *std::ranges::min_element(bins) += ns;
    return *std::ranges::max_element(bins);
  }

  Sections sections_of(std::size_t begin, std::size_t end) {
    Parts parts(begin);
    for (std::size_t i = begin; i < end; ++i) parts.add(i, depends_[i], items_[i].ns);
    struct Part {
      double ns = 0;
      std::vector<std::size_t> items;
    };
    std::vector<Part> by_root(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      Part& part = by_root[parts.find(i)];
      part.ns += items_[i].ns;
      part.items.push_back(i);
    }
    std::ranges::stable_sort(by_root, std::greater<>(), &Part::ns);
    std::vector<Part> bins(static_cast<std::size_t>(num_bins()));
    for (const Part& part : by_root) {
      Part& bin = *std::ranges::min_element(bins, {}, &Part::ns);
      bin.ns += part.ns;
      bin.items.insert(bin.items.end(), part.items.begin(), part.items.end());
    }
    std::erase_if(bins, [](const Part& bin) { return bin.items.empty(); });
    std::ranges::stable_sort(bins, std::greater<>(), &Part::ns);
    Sections all;
    all.sections.resize(bins.size());
    std::vector<bool> taken(bins.size());
    for (Part& bin : bins) {
      std::ranges::sort(bin.items);
      const std::size_t place = place_of(bin.items, taken);
      taken[place] = true;
      for (const std::size_t i : bin.items) all.sections[place].body.push_back(std::move(items_[i].stmt));
      for (const std::size_t i : bin.items) homes_.write(items_[i].touches, place);
    }
    return all;
  }

  std::size_t place_of(const std::vector<std::size_t>& items, const std::vector<bool>& taken) const {
    std::vector<Touch> touches;
    for (const std::size_t i : items) touches.insert(touches.end(), items_[i].touches.begin(), items_[i].touches.end());
    return place_of(touches, taken);
  }
  // Where most lies of what is touched: in the cache of whoever ran that section before.
  std::size_t place_of(const std::vector<Touch>& touches, const std::vector<bool>& taken) const {
    std::vector<std::int64_t> bytes(taken.size());
    std::set<int> seen;
    for (const Touch& t : touches)
      if (const auto home = homes_.find(t.buffer); home < bytes.size() && seen.insert(t.buffer).second)
        bytes[home] += homes_.bytes(t.buffer);
    std::size_t best = taken.size();
    for (std::size_t place = 0; place < taken.size(); ++place)
      if (!taken[place] && (best == taken.size() || bytes[place] > bytes[best])) best = place;
    return best;
  }

  Program& program_;
  Homes& homes_;
  std::vector<Item> items_;
  int num_workers_;
  double join_ns_;
  std::vector<std::vector<std::size_t>> depends_;  // on which earlier statements
  std::vector<std::size_t> window_from_;           // the end of the window that begins there, or 0
};

class SectionMaker {
 public:
  SectionMaker(Program& program, int num_workers, double join_ns, bool pipelines)
      : program_(program), num_workers_(num_workers), join_ns_(join_ns), pipelines_(pipelines), homes_(program) {}

  bool run() { return outside(program_.body); }

 private:
  bool outside(Block& block) {
    Block made;
    bool any = false;
    for (Stmt& stmt : block) {
      if (auto* loop = std::get_if<For>(&stmt.node)) any |= outside(loop->body);
      auto* single = std::get_if<Single>(&stmt.node);
      if (single == nullptr || single->body.size() < 2) {
        const bool twice = std::holds_alternative<Barrier>(stmt.node) && !made.empty() &&
                           std::holds_alternative<Barrier>(made.back().node);
        if (!twice) made.push_back(std::move(stmt));
        continue;
      }
      Block pieces;
      if (cut(*single, pieces)) {
        any = true;
        append(made, std::move(pieces));
      } else {
        made.push_back(std::move(stmt));
      }
    }
    block = std::move(made);
    return any;
  }

  // Leaves the Single as it is if nothing is cut.
  bool cut(const Single& single, Block& pieces) {
    bool any = false;
    std::vector<Item> items;
    const auto flush = [&] {
      leave_if_cancelled();
      any |= Cut(program_, homes_, std::exchange(items, {}), num_workers_, join_ns_).append_to(pieces, pipelines_);
    };
    for (const Stmt& stmt : single.body) {
      // What it reads all know from then on; nobody may write it before all have.
      if (std::holds_alternative<Let>(stmt.node)) {
        flush();
        pieces.push_back(stmt);
        pieces.push_back({Barrier{}});
        continue;
      }
      items.push_back({stmt, touches_of(stmt), estimate_ns(program_, {stmt})});
      if (items.size() == most_at_once) flush();
    }
    flush();
    return any;
  }

  Program& program_;
  int num_workers_;
  double join_ns_;
  bool pipelines_;
  Homes homes_;
};

// A grid of one tile, which one worker would run, is a Single of the same statements: rows of a short batch have independent parts as one row has.
// Says whether there was one.
bool open_single_tiles(Program& program, Block& block) {
  bool any = false;
  for (Stmt& stmt : block) {
    if (auto* loop = std::get_if<For>(&stmt.node)) any |= open_single_tiles(program, loop->body);
    auto* grid = std::get_if<Grid>(&stmt.node);
    if (grid == nullptr || grid->num_blocks * grid->tiles_per_block > 1 || grid->slots > 0) continue;
    if (!grid->total.is_static() || grid->total.bound < 1) continue;
    Single single{std::move(grid->prologue)};
    append(single.body, std::move(grid->body));
    for (const Var v : {grid->block, grid->row0}) set_variable(single.body, v, 0);
    set_variable(single.body, grid->rows, grid->total.bound);
    for (const Touch& t : touches_of(single.body))
      if (Buffer& buffer = program.buffers[static_cast<std::size_t>(t.buffer)]; buffer.space == Space::Worker)
        buffer.space = Space::Shared;
    stmt.node = std::move(single);
    any = true;
  }
  return any;
}

bool has_several_loops(const Block& block) {
  const auto is_loop = [](const Stmt& s) { return std::holds_alternative<For>(s.node); };
  return std::ranges::count_if(block, is_loop) > 1 || std::ranges::any_of(block, [](const Stmt& s) {
           if (const auto* loop = std::get_if<For>(&s.node)) return has_several_loops(loop->body);
           if (const auto* single = std::get_if<Single>(&s.node)) return has_several_loops(single->body);
           if (const auto* grid = std::get_if<Grid>(&s.node)) return has_several_loops(grid->body);
           return false;
         });
}

double least_time_ns(const Program& program, int num_workers) {
  return estimate_time_ns(program, program.max_rows, best_num_workers(program, program.max_rows, num_workers));
}

}  // namespace

void make_sections(Program& program, int num_workers, bool always) {
  // Of the time without; estimates of rounds, which are short, err more.
  constexpr double worth_it = 0.95, worth_rounds = 0.85;
  const Program whole = program;
  change_places(program);
  join_phases(program);
  plan_memory(program);
  const double uncut = least_time_ns(program, num_workers);
  double least = uncut;
  // Stacked layers follow one another, both directions of a layer run side by side: what has both can be cut in two ways.
  for (const bool pipelines : {false, true}) {
    if (pipelines && !has_several_loops(whole.body)) continue;
    Program cut = whole;
    open_single_tiles(cut, cut.body);
    if (!SectionMaker(cut, num_workers, always ? 0 : TeamCost{}.join_ns, pipelines).run()) continue;
    join_phases(cut);
    plan_memory(cut);
    const double ns = least_time_ns(cut, num_workers);
    if (!always && ns >= std::min(least, (pipelines ? worth_rounds : worth_it) * uncut)) continue;
    least = ns;
    program = std::move(cut);
  }
}

}  // namespace hotloop::kernel
