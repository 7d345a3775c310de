#include "schedule/column_walk.h"

#include <algorithm>
#include <utility>

#include "core/index.h"

namespace hotloop::kernel {
namespace {

// Of the first cache, what a loop leaves for B; between two calls of a program its caller does something.
std::int64_t room_for_b(const Target& target, bool in_loop) { return target.l1_bytes_there / 8 * (in_loop ? 7 : 5); }

// Bytes a cycle from the second cache, a little less than it gives.
constexpr double fetched_rate = 28;

// What is read from one end to the other each time stays if nearly all of the first cache holds it.
bool stays(const Target& target, std::int64_t bytes) { return bytes <= target.l1_bytes_there / 16 * 15; }

class Walker {
 public:
  Walker(const Target& target, const ProductShape& shape, std::int64_t panel)
      : target_(target),
        m_(shape.m.bound),
        rows_(std::clamp<std::int64_t>(m_, 1, target.dot_rows)),
        accumulators_(std::int64_t{target.dot_rows} * target.dot_vectors / rows_),
        vector_bytes_(shape.depth * vector_bytes),
        room_(room_for_b(target, shape.in_loop)),
        in_loop_(shape.in_loop),
        panel_(panel) {
    const std::int64_t lanes = lanes_of(shape.dtype), vectors = divided_up(shape.n, lanes);
    // A last panel of fewer columns lies as the others do only where panels are of one vector.
    panels_ = panel == 1 ? vectors : shape.n / (panel * lanes);
    rest_ = vectors - panels_ * panel;
  }

  ColumnWalk walk() const {
    ColumnWalk best = in_tiles(0, divisor_or_most());
    const bool is_streamed = this->is_streamed();
    best.turns = is_streamed && best.runs.size() == 1 && best.runs[0].width < best.runs[0].end;
    if (!is_streamed || all_stays()) return best;
    double fewest = cycles(best);
    // At equal cost the simplest walk, and narrow tiles, which read B in fewer streams.
    for (std::int64_t end = 0; 2 * end < panels_ && end * panel_ <= accumulators_; ++end) {
      for (std::int64_t side = 1; side <= most_side(); ++side) {
        if ((panels_ - 2 * end) % side != 0) continue;
        const ColumnWalk walk = in_tiles(end, side);
        const double now = cycles(walk);
        if (now > fewest || (now == fewest && best.runs.front().width <= walk.runs.front().width)) continue;
        fewest = now;
        best = walk;
      }
    }
    return best;
  }

  // What this walk takes together with what follows, at so many cycles for a vector of each part of the columns.
  double cycles_apart(std::int64_t parts, double cycles_after) const {
    const ColumnWalk apart = walk();
    const std::int64_t vectors =
        apart.runs.empty() ? rest_ : apart.runs.back().width;  // fewer columns than a panel has
    return cycles_in_tiles_of(vectors, kept_in_tiles_of(vectors, 1)) +
           static_cast<double>(panels_ * panel_ / parts) * cycles_after;
  }

  // The same of the best walk by blocks, if there is one.
  std::optional<std::pair<BlockWalk, double>> by_blocks(std::int64_t parts, double cycles_after) const {
    // So much of what follows costs nothing while B is fetched, by measurement (Zen 4); the last tile is finished when nothing is.
    constexpr double hidden = 0.75, set_up = 64;
    const std::int64_t vectors = panels_ * panel_, blocks = vectors / parts;
    std::optional<std::pair<BlockWalk, double>> best;
    if (m_ != 1 || rest_ > 0 || vectors % parts != 0 || !is_streamed() || all_stays()) return best;
    if (panel_ > 1 && blocks % panel_ != 0) return best;
    for (std::int64_t width = 1; width < blocks && width * parts <= std::min(most_vectors, accumulators_); ++width) {
      if (blocks % width != 0 || (panel_ % width != 0 && width % panel_ != 0)) continue;
      const double after = static_cast<double>(blocks) - hidden * static_cast<double>(blocks - width);
      const std::int64_t kept = kept_in_tiles_of(width * parts, panel_ > width ? panel_ / width : 1);
      const double now = set_up + cycles_in_tiles_of(width * parts, kept) + after * cycles_after;
      if (!best || now < best->second) best = {{parts, blocks, width}, now};
    }
    return best;
  }

  // Whether few rows leave too little time to fetch B while it is used.
  bool is_streamed() const { return m_ <= 2 * target_.dot_rows && all_bytes() > target_.l1_bytes / 2; }

  // Cycles in which such a walk passes all of B, roughly: what stayed in the first cache comes by two loads a cycle, the rest by 28 bytes, but no tile is
  // faster than its accumulators, which wait four cycles for themselves, nor than two multiplications a cycle.
  double cycles(const ColumnWalk& walk) const {
    const double loaded = 2.0 * vector_bytes / target_.vector_registers, fetched = fetched_rate;
    const auto pass = [&](std::int64_t vectors, std::int64_t width, double rate) {
      const double summed = static_cast<double>(rows_ * width) * vector_bytes / 4;
      return static_cast<double>(vectors * vector_bytes_) /
             std::min({rate, summed, loaded / static_cast<double>(rows_)});
    };
    double sum = rest_ > 0 ? pass(rest_, rest_, all_stays() ? loaded : fetched) : 0;
    std::int64_t room = walk.turns ? room_ - rest_ * vector_bytes_ : 0;
    if (all_stays()) room = all_bytes();
    for (auto run = walk.runs.rbegin(); run != walk.runs.rend(); ++run) {
      const std::int64_t tile_bytes = run->width * vector_bytes_, vectors = run->end - run->begin;
      const std::int64_t kept = std::min(vectors, std::max<std::int64_t>(0, room) / tile_bytes * run->width);
      sum += pass(kept, run->width, loaded) + pass(vectors - kept, run->width, fetched);
      room = kept < vectors ? 0 : room - kept * vector_bytes_;
    }
    return sum;
  }

  bool all_stays() const { return stays(target_, all_bytes()); }

 private:
  static constexpr std::int64_t most_vectors = 8;

  // What stays in the first cache of B where a walk turns in tiles of so many vectors. Those that are one in `apart` of each panel's lines lie in as few of the
  // cache's sets, and others in others, so that these keep a tile each; but a tile must find room there.
  std::int64_t kept_in_tiles_of(std::int64_t vectors, std::int64_t apart) const {
    const std::int64_t bytes = vectors * vector_bytes_ * apart;
    if (bytes > target_.l1_bytes_there) return 0;
    return std::min(apart > 1 && in_loop_ ? bytes : room_, all_bytes());
  }
  double cycles_in_tiles_of(std::int64_t vectors, std::int64_t kept) const {
    const double summed = static_cast<double>(rows_ * vectors) * vector_bytes / 4;
    return static_cast<double>(kept) / std::min(target_.l1_rate_there, summed) +
           static_cast<double>(all_bytes() - kept) / std::min(fetched_rate, summed);
  }

  std::int64_t all_bytes() const { return (panels_ * panel_ + rest_) * vector_bytes_; }

  // Panels side by side, so that enough accumulators are in flight, but no more than there are registers for.
  std::int64_t most_side() const { return std::max<std::int64_t>(1, std::min(most_vectors, accumulators_) / panel_); }
  std::int64_t divisor_or_most() const {
    for (std::int64_t side = most_side(); 2 * side > most_side(); --side)
      if (panels_ % side == 0) return side;
    return most_side();
  }

  // `end` panels at either end as one tile, those between them in tiles of `side` at most, as wide as each other or one panel apart: a single panel left
  // over would keep few accumulators in flight.
  ColumnWalk in_tiles(std::int64_t end, std::int64_t side) const {
    ColumnWalk walk{.panel = panel_, .runs = {}, .rest = panels_ * panel_, .turns = true};
    const auto add = [&](std::int64_t first, std::int64_t last, std::int64_t width) {
      if (first < last) walk.runs.push_back({first * panel_, last * panel_, width * panel_});
    };
    const std::int64_t panels = panels_ - 2 * end, tiles = divided_up(panels, side);
    const std::int64_t width = tiles == 0 ? 1 : panels / tiles,
                       wide = tiles == 0 ? end : end + panels % tiles * (width + 1);
    add(0, end, end);
    add(end, wide, width + 1);
    add(wide, panels_ - end, width);
    add(panels_ - end, panels_, end);
    return walk;
  }

  const Target& target_;
  std::int64_t m_, rows_, accumulators_, vector_bytes_, room_;
  bool in_loop_;
  std::int64_t panel_, panels_ = 0, rest_ = 0;
};

}  // namespace

ProductShape shape_of(const Dot& dot, bool in_loop) {
  ProductShape shape{dot.dtype, dot.m, dot.n.bound, 0, in_loop};
  for (const DotSegment& segment : dot.segments) shape.depth += segment.depth();
  return shape;
}

ColumnWalk column_walk(const Target& target, const Dot& dot, bool in_loop) {
  const ProductShape shape = shape_of(dot, in_loop);
  const std::int64_t columns = dot.panel() > 0 ? dot.panel() : panel_columns(target, shape);
  return Walker(target, shape, columns / lanes_of(dot.dtype)).walk();
}

std::optional<BlockWalk> block_walk(const Target& target, const Dot& dot, bool in_loop, std::int64_t parts,
                                    double cycles_after) {
  const std::int64_t lanes = lanes_of(dot.dtype);
  if (!dot.m.is_static() || dot.n.bound % (parts * lanes) != 0) return std::nullopt;
  const Walker walker(target, shape_of(dot, in_loop), dot.panel() > 0 ? dot.panel() / lanes : 1);
  const auto found = walker.by_blocks(parts, cycles_after);
  if (!found || found->second >= walker.cycles_apart(parts, cycles_after)) return std::nullopt;
  return found->first;
}

std::int64_t panel_columns(const Target& target, const ProductShape& shape) {
  constexpr double worthwhile = 0.98, gate = 15;  // cycles for a vector of columns: what follows is not known yet
  const std::int64_t lanes = lanes_of(shape.dtype), widest = target.dot_vectors;
  const Walker walker(target, shape, widest);
  if (!shape.in_loop || !shape.m.is_static() || shape.m.bound > 2 || walker.all_stays()) return widest * lanes;
  // The panel of the fewest cycles, if there is one of less than `fewest`; of those that take nearly as long the widest.
  const auto best_panel = [&](double fewest, const auto& cycles_of) {
    std::optional<std::int64_t> best;
    for (std::int64_t panel = widest; panel > 0; panel /= 2) {
      const std::optional<double> cycles = cycles_of(Walker(target, shape, panel));
      if (!cycles || *cycles >= fewest) continue;
      fewest = worthwhile * *cycles;
      best = panel;
    }
    return best;
  };
  const auto of_walk = [](const Walker& w) { return std::optional(w.cycles(w.walk())); };
  const std::int64_t panel = best_panel(worthwhile * *of_walk(walker), of_walk).value_or(widest);
  if (shape.parts < 2) return panel * lanes;
  const double after = static_cast<double>(shape.parts) * gate;
  const auto by_blocks = [&](const Walker& w) {
    const auto found = w.by_blocks(shape.parts, after);
    return found ? std::optional(found->second) : std::nullopt;
  };
  return best_panel(Walker(target, shape, panel).cycles_apart(shape.parts, after), by_blocks).value_or(panel) * lanes;
}

std::int64_t bound_panel_columns(const Target& target, DType dtype, std::int64_t rows, std::int64_t step_bytes) {
  const bool one_load = target.l1_rate_there * target.vector_registers <= vector_bytes;
  return rows == 1 && one_load && !stays(target, step_bytes) ? lanes_of(dtype) : target.panel(dtype);
}

}  // namespace hotloop::kernel
