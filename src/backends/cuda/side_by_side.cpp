#include "backends/cuda/side_by_side.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>

#include "backends/cuda/cost.h"
#include "hotloop/error.h"
#include "schedule/accesses.h"

namespace hotloop::cuda {

SideBySide side_by_side() {
  const char* set = std::getenv("HOTLOOP_CUDA_BLOCKS");
  if (set == nullptr || *set == '\0') return {};
  const std::string text = set;
  if (text == "auto") return {.most = most_side_by_side};
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > most_side_by_side ||
      !std::has_single_bit(static_cast<unsigned>(number)))
    throw UserError("HOTLOOP_CUDA_BLOCKS", "must be auto or a power of two up to " + std::to_string(most_side_by_side),
                    "\"" + text + "\"", "auto");
  return {.most = number, .always = true};
}

int choose_blocks(const kernel::Program& program, std::int64_t rows, const DeviceInfo& device, int most) {
  // An estimate of both is not so good that less should decide.
  constexpr double worth_it = 0.8;
  const SideBySide wanted = side_by_side();
  most = std::min({most, wanted.most, device.blocks_of_worker});
  if (wanted.always || most == 1) return most;
  const std::int64_t tiles = kernel::num_tile_blocks(program);
  if (tiles == 0) return 1;
  int best = 1;
  double least = estimate_cycles(program, rows, device, 1);
  for (int blocks = 2; blocks <= most && tiles * blocks <= device.multiprocessors; blocks *= 2)
    if (const double cycles = estimate_cycles(program, rows, device, blocks); cycles < worth_it * least) {
      least = cycles;
      best = blocks;
    }
  return best;
}

}  // namespace hotloop::cuda
