#include "runtime/run_plan.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <type_traits>

#include "runtime/engine.h"
#include "runtime/kernel_record.h"
#include "schedule/accesses.h"
#include "schedule/cost.h"

namespace hotloop::runtime {
namespace {

std::int64_t slots_in(const kernel::Block& block) {
  std::int64_t slots = 0;
  kernel::for_each_statement(block, [&](const auto& s) {
    if constexpr (std::is_same_v<std::decay_t<decltype(s)>, kernel::Grid>) slots = std::max(slots, s.slots);
  });
  return slots;
}

void choose_workers(RunPlan& plan, const kernel::Program& program, int most) {
  auto& by_width = plan.workers_by_width;
  if (most == 1 || always_takes_team()) {
    by_width.fill(most);
    return;
  }
  plan.alone_ns = kernel::estimate_time_ns(program, program.max_rows, 1);
  for (std::size_t width = 0; width < by_width.size(); ++width) {
    const std::int64_t low = width == 0 ? 0 : std::int64_t{1} << (width - 1);
    // The full batch is the most common one.
    const bool full = plan.fixed_rows || low + (low - 1) >= program.max_rows;
    by_width[width] = kernel::best_num_workers(program, full ? program.max_rows : low + low / 2, most);
    if (full) {
      std::fill(by_width.begin() + static_cast<std::ptrdiff_t>(width), by_width.end(), by_width[width]);
      if (plan.fixed_rows) by_width.fill(by_width[width]);
      return;
    }
  }
}

std::string explained(const RunPlan& plan, const kernel::Program& program, int most) {
  if (most == 1) return "";
  const auto& by_width = plan.workers_by_width;
  const int all = plan.workers_of(program.max_rows);
  std::string text = std::to_string(all) + " of " + std::to_string(most) + " work on " +
                     (plan.fixed_rows ? std::string("a call") : std::to_string(program.max_rows) + " rows");
  if (all < most || by_width.front() != all) {
    char estimates[96];
    const int other = all > 1 ? 1 : most;
    const auto us = [&](int n) { return kernel::estimate_time_ns(program, program.max_rows, n) * 1e-3; };
    std::snprintf(estimates, sizeof estimates, " (estimated %.3g us, with %d %.3g us)", us(all), other, us(other));
    text += estimates;
    for (std::size_t width = 1; all > 1 && width < by_width.size(); ++width)
      if (by_width[width] > 1) {
        if (width > 1) text += ", one on fewer than " + std::to_string(std::int64_t{1} << (width - 1));
        break;
      }
  }
  if (plan.structure.num_sections > 0 && all > 1) text += "; what is independent runs at once, in sections";
  return text;
}

}  // namespace

int RunPlan::workers_of(std::int64_t rows) const {
  return workers_by_width[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(rows)))];
}
int RunPlan::most_workers() const { return *std::ranges::max_element(workers_by_width); }

RunPlan plan_run(const kernel::Program& program, int num_workers, bool fixed_rows) {
  RunPlan plan;
  plan.max_rows = program.max_rows;
  plan.shared_bytes = program.shared_bytes;
  plan.worker_bytes = program.worker_bytes;
  plan.flushes_denormals = program.flushes_denormals;
  plan.fixed_rows = fixed_rows;
  plan.structure = structure_of(program);
  plan.slots = slots_in(program.body);
  choose_workers(plan, program, num_workers);
  plan.call_ns = kernel::estimate_time_ns(program, program.max_rows, plan.workers_of(program.max_rows));
  plan.workers = explained(plan, program, num_workers);
  return plan;
}

}  // namespace hotloop::runtime
