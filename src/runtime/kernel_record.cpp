#include "runtime/kernel_record.h"

#include <type_traits>

#include "schedule/accesses.h"

namespace hotloop::runtime {

KernelRecord structure_of(const kernel::Program& program) {
  KernelRecord record;
  record.name = program.name;
  record.shared_bytes = program.shared_bytes;
  record.scratch_bytes = program.worker_bytes + program.near_bytes;
  kernel::for_each_statement(program.body, [&](const auto& s) {
    using T = std::decay_t<decltype(s)>;
    record.num_maps += std::is_same_v<T, kernel::Map>;
    record.num_dots += std::is_same_v<T, kernel::Dot>;
    record.num_loops += std::is_same_v<T, kernel::For>;
    record.num_grids += std::is_same_v<T, kernel::Grid>;
    if constexpr (std::is_same_v<T, kernel::Sections>) record.num_sections += static_cast<int>(s.sections.size());
  });
  return record;
}

}  // namespace hotloop::runtime
