// Sections run at once: no element that one of them writes may be touched by another, unless rounds lie between.
#include "schedule/footprint.h"
#include "schedule/sections.h"

namespace hotloop::kernel {
std::optional<std::string> broken_rule(const Program& program, const Sections& all) {
  const auto buffer = [&](const Touch& t) -> const Buffer& {
    return program.buffers[static_cast<std::size_t>(t.buffer)];
  };
  const bool rounds = all.num_rounds() > 1;
  if (all.sections.empty() || all.trip < 1 || all.chunk < 1) return "sections must not be empty";
  std::vector<std::vector<Touch>> touches;
  for (const Section& section : all.sections) {
    if (section.delay < 0) return "a section is no round ahead of the first";
    if (rounds != (section.first >= 0) || rounds != (section.steps >= 0))
      return "a section of several rounds, and no other, has a first step and a number of them";
    touches.push_back(touches_of(section.body, section.first));
    for (const Touch& t : touches.back())
      if (buffer(t).space == Space::Worker)
        return "a section keeps " + buffer(t).name + " in an arena that others have too";
  }
  for (std::size_t i = 0; i < touches.size(); ++i)
    for (std::size_t j = 0; j < touches.size(); ++j) {
      const std::int64_t ahead = all.sections[j].delay - all.sections[i].delay;
      if (i == j || ahead < 0) continue;
      for (const Touch& a : touches[i])
        for (const Touch& b : touches[j]) {
          if (!a.writes && !b.writes) continue;
          if (a.buffer != b.buffer) {
            const bool is_planned = program.shared_bytes > 0;
            if (is_planned && share_memory(buffer(a), buffer(b)))
              return "sections must not share the memory of " + buffer(a).name + " and " + buffer(b).name;
            continue;
          }
          if (!may_meet(a, b)) continue;
          if (ahead == 0) return "sections must not share what one of them writes: " + buffer(a).name;
          if (!follows_by_chunks(b, a, all.chunk, all.num_chunks(), all.reverse))
            return "a section must not touch chunks of " + buffer(a).name + " that the one before it has not done";
        }
    }
  return std::nullopt;
}

}  // namespace hotloop::kernel
