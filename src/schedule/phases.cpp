#include "schedule/phases.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "schedule/accesses.h"
#include "schedule/footprint.h"

namespace hotloop::kernel {
namespace {

bool is_single(const Stmt& stmt) { return std::holds_alternative<Single>(stmt.node); }
bool is_barrier(const Stmt& stmt) { return std::holds_alternative<Barrier>(stmt.node); }

// What is joined so far: one Single at most, and what several workers do.
struct Phase {
  Block several, single;
  std::vector<Touch> several_touches, single_touches;

  bool admits(const std::vector<Touch>& touches, bool to_single) const {
    return !conflict(touches, several_touches) && (to_single || !conflict(touches, single_touches));
  }
  void add(Stmt stmt, const std::vector<Touch>& touches) {
    auto& all = is_single(stmt) ? single_touches : several_touches;
    all.insert(all.end(), touches.begin(), touches.end());
    if (!is_single(stmt)) return several.push_back(std::move(stmt));
    append(single, std::move(std::get<Single>(stmt.node).body));
  }
  void end(Block& block) {
    if (several.empty() && single.empty()) return;
    append(block, std::move(several));
    if (!single.empty()) block.push_back({Single{std::move(single)}});
    block.push_back({Barrier{}});
    *this = {};
  }
};

// `met`: whether all workers met just before.
void join(const Program& program, Block& block, bool met) {
  Block joined;
  Phase phase;
  for (std::size_t i = 0; i < block.size(); ++i) {
    Stmt& stmt = block[i];
    // Workers leave a loop one by one, and read the condition that ends it on their own.
    if (auto* loop = std::get_if<For>(&stmt.node)) join(program, loop->body, false);
    const bool ends_in_barrier = i + 1 < block.size() && is_barrier(block[i + 1]);
    if (met && ends_in_barrier && may_run_beside_others(stmt)) {
      const std::vector<Touch> touches = touches_of(stmt);
      if (!phase.admits(touches, is_single(stmt))) phase.end(joined);
      phase.add(std::move(stmt), touches);
      ++i;
      continue;
    }
    phase.end(joined);
    met = is_barrier(stmt);
    joined.push_back(std::move(stmt));
  }
  phase.end(joined);
  block = std::move(joined);
}

}  // namespace

bool may_run_beside_others(const Stmt& stmt) {
  if (const auto* map = std::get_if<Map>(&stmt.node)) return map->split;
  if (const auto* pack = std::get_if<Pack>(&stmt.node)) return pack->split;
  if (const auto* all = std::get_if<Sections>(&stmt.node)) return all->num_rounds() == 1;
  return is_single(stmt);
}

void join_phases(Program& program) { join(program, program.body, true); }

std::optional<std::string> broken_phase(const Program& program, const Block& block, int read_before) {
  const auto buffer = [&](const Touch& t) -> const Buffer& {
    return program.buffers[static_cast<std::size_t>(t.buffer)];
  };
  std::vector<std::pair<bool, std::vector<Touch>>> phase;  // whether it is a Single, and what it touches
  std::vector<int> read_by_each;
  if (read_before >= 0) read_by_each.push_back(read_before);
  for (const Stmt& stmt : block) {
    if (is_barrier(stmt)) {
      phase.clear();
      read_by_each.clear();
    }
    if (!read_by_each.empty())
      for (const Touch& t : touches_of(stmt))
        for (const int b : read_by_each)
          if (t.writes && (t.buffer == b || share_memory(buffer(t), program.buffers[static_cast<std::size_t>(b)])))
            return "workers may still be reading " + program.buffers[static_cast<std::size_t>(b)].name + " where " +
                   buffer(t).name + " is written";
    if (const auto* loop = std::get_if<For>(&stmt.node); loop && loop->stop) read_by_each.push_back(loop->stop->buffer);
    if (const auto* let = std::get_if<Let>(&stmt.node))
      for_each_access(*let, [&](const Use& use) { read_by_each.push_back(use.access->buffer); });
    if (!may_run_beside_others(stmt)) continue;
    const std::vector<Touch> touches = touches_of(stmt);
    for (const auto& [single, others] : phase) {
      if (single && is_single(stmt)) continue;
      for (const Touch& a : others)
        for (const Touch& b : touches) {
          if (conflict(a, b))
            return "what stands between two barriers must not share what it writes: " + buffer(a).name;
          const bool meets_another = a.buffer != b.buffer && (a.writes || b.writes) && program.shared_bytes > 0;
          if (meets_another && share_memory(buffer(a), buffer(b)))
            return "what stands between two barriers must not share the memory of " + buffer(a).name + " and " +
                   buffer(b).name;
        }
    }
    phase.emplace_back(is_single(stmt), touches);
  }
  return std::nullopt;
}

}  // namespace hotloop::kernel
