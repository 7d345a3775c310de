#include "backends/render/block_dot.h"

#include <algorithm>

#include "backends/render/renderer.h"
#include "core/index.h"

namespace hotloop::render {

using namespace kernel;

void BlockDotWriter::render_dot(const Dot& whole) {
  if (whole.n.bound == 0 || whole.m.bound == 0) return;
  parts_ = parts_of_columns(whole, blocks_);
  if (parts_ < blocks_) open("if (hl_rank() < " + number(parts_) + ")");
  const Dot part = part_of(whole, parts_);
  if (const auto panels = panels_of(part))
    render_by_panels(part, *panels);
  else
    render_part_of(part, staged_factors(whole));
  if (parts_ < blocks_) close();
  parts_ = 1;
}

void BlockDotWriter::render_part_of(const Dot& dot, const StagedFactors& staged) {
  const std::string t = type(dot.dtype), it = index_type();
  const std::int64_t n = dot.n.bound;
  const KeptDot kept = kept_factors(dot);
  const int rows = kept.shape.tile.rows, columns = kept.shape.tile.columns;
  // Neighbouring threads take neighbours of what lies side by side in the result.
  const bool rows_first = rows_go_first(dot), together = columns_lie_together(dot, columns);
  open("");
  line(comment("dot " + dot.name));
  const std::string groups = rows > 1 ? "row_groups" : "m_end", column_groups = number(divided_up(n, columns));
  const auto write_extents = [&] {
    line("const " + it + " m_end = " + extent(dot.m) + ";");
    if (rows > 1) line("const " + it + " row_groups = ((m_end + " + number(rows - 1) + ") / " + number(rows) + ");");
  };
  write_extents();
  if (staged.bytes > 0) render_staging(dot, staged);
  const bool once = divided_up(dot.m.bound, rows) * divided_up(n, columns) <= threads_;
  const auto row = [&](int i) {
    return rows_first ? "mg + " + scaled(i, groups) : scaled(rows, "mg") + " + " + number(i);
  };
  // The places of a thread's sums.
  const auto open_sums = [&] {
    if (once) {
      line("const " + it + " p = hl_block_thread();");
      open("if (p < " + groups + " * " + column_groups + ")");
    } else {
      open("for (" + it + " p = hl_block_thread(); p < " + groups + " * " + column_groups + "; p += HL_BLOCK_THREADS)");
    }
    if (rows_first)
      line("const " + it + " mg = p % " + groups + ", ng = p / " + groups + ";");
    else
      line("const " + it + " ng = p % " + column_groups + ", mg = p / " + column_groups + ";");
    for (int i = 0; i < rows; ++i)
      line("const " + it + " m" + std::to_string(i) + " = " +
           (rows == 1 ? "mg"
            : i == 0  ? row(i)
                      : row(i) + " < m_end ? " + row(i) + " : m_end - 1") +
           ";");
    write_columns(dot, columns);
  };
  const auto start = [&](int i, int j) {
    return name(dot.init->buffer) + "[" + affine(dot.init->index) + " + " +
           scaled(dot.init_m, "m" + std::to_string(i)) + " + " + scaled(dot.init_n, "n" + std::to_string(j)) + "]";
  };
  // What sums start from in all iterations of a loop is read in front of it, where each thread has the same sums every time.
  constexpr int most_starts_kept = 8;
  std::string starts;
  if (once && dot.init && rows * columns <= most_starts_kept && extents_stay_ && stays_in_loop(*dot.init)) {
    starts = "start" + std::to_string(num_starts_++);
    std::string inside = std::exchange(out_, "");
    line(t + " " + starts + "[" + number(rows * columns) + "] = {};");
    open(only_if_.empty() ? "" : "if (" + only_if_ + ")");
    write_extents();
    open_sums();
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) line(starts + "[" + number(i * columns + j) + "] = " + start(i, j) + ";");
    close();
    close();
    loops_.back().before += std::exchange(out_, std::move(inside));
  }
  open_sums();
  const auto sum = [](int i, int j) { return "s" + std::to_string(i) + "_" + std::to_string(j); };
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      line(t + " " + sum(i, j) + " = " +
           (!dot.init        ? "0"
            : starts.empty() ? start(i, j)
                             : starts + "[" + number(i * columns + j) + "]") +
           ";");
  for (std::size_t i = 0; i < dot.segments.size(); ++i)
    render_segment(dot, dot.segments[i], kept, kept.segments[i], staged.of_segments[i]);
  line(t + "* const c = " + pointer(dot.c) + ";");
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      std::string when;
      if (i > 0) when = row(i) + " < m_end";
      if (j > 0 && !together && n % columns != 0)
        when += (when.empty() ? "" : " && ") + ("ng + " + scaled(j, column_groups)) + " < " + number(n);
      const std::string at =
          "c[" + scaled(dot.c_m, "m" + std::to_string(i)) + " + " + scaled(dot.c_n, "n" + std::to_string(j)) + "]";
      line((when.empty() ? "" : "if (" + when + ") ") + store(dot.c.buffer, at, sum(i, j)));
    }
  close();
  close();
}

struct BlockDotWriter::Part {
  std::int64_t begin = 0;
  std::string end;  // steps along the last dim of k
  const Kept* kept = nullptr;
  bool in_registers = false;  // else near, where they are kept
  std::int64_t steps = 0;
};

void BlockDotWriter::render_segment(const Dot& dot, const DotSegment& segment, const KeptDot& kept, const Kept& steps,
                                    const Staged& staged) {
  const DotSegment s = merged(segment, staged.is_staged());
  const std::string t = type(factor_dtype(dot));
  const std::int64_t all = steps.steps.all(), depth = s.depth();
  open("");
  if (staged.is_staged())
    line("const " + t + "* const left = (const " + t + "*)(near + " + std::to_string(staged.begin) + ");");
  if (const std::int64_t n = steps.steps.in_registers; n > 0)
    render_part(dot, s, kept.shape.tile, staged, {0, number(n), &steps, true, n});
  if (const std::int64_t n = steps.steps.near; n > 0)
    render_part(dot, s, kept.shape.tile, staged, {all - n, number(all), &steps, false, n});
  const Extent last = s.k.empty() ? Extent{} : s.k.back().extent;
  if (all == 0)
    render_part(dot, s, kept.shape.tile, staged, {0, extent(last), nullptr, false, last.bound});
  else if (all < depth)
    render_part(dot, s, kept.shape.tile, staged, {all, number(depth), nullptr, false, depth - all});
  close();
}

// Words that are read together, before those that are multiplied are used up.
struct BlockDotWriter::Groups {
  std::int64_t words = 0, count = 0;  // in a group; of groups, fewer than 2: no groups
  int num_dims = 1;                   // innermost ones, which groups go through as if they were one
};

// `steps` of the last dim of k, `numbers` of each, in words of `ahead` steps.
BlockDotWriter::Groups BlockDotWriter::groups_of(const DotSegment& s, std::int64_t steps, int numbers,
                                                 std::int64_t ahead) {
  constexpr std::int64_t most_numbers = 48, most_steps = 16, least_steps = 4;
  if (s.k.empty() || !s.k.back().extent.is_static()) return {};
  const bool has_outer = s.k.size() > 1 && s.k[s.k.size() - 2].extent.is_static();
  const std::int64_t outer = has_outer ? s.k[s.k.size() - 2].extent.bound : 1;
  for (const std::int64_t words : {8, 4, 2, 1}) {
    const std::int64_t in_a_group = words * ahead;
    if (in_a_group > most_steps || in_a_group < least_steps || in_a_group * numbers > most_numbers) continue;
    if (s.k.size() == 1 || steps >= 4 * in_a_group) {
      if (steps >= 2 * in_a_group) return {words, steps / in_a_group, 1};
    } else if (has_outer && outer * steps >= 2 * in_a_group) {
      if (steps % in_a_group == 0 || (in_a_group % steps == 0 && outer % (in_a_group / steps) == 0))
        return {words, outer * steps / in_a_group, 2};
    }
  }
  return {};
}

void BlockDotWriter::render_part(const Dot& dot, const DotSegment& s, const RegisterTile& tile, const Staged& staged,
                                 const Part& part) {
  const std::string t = type(factor_dtype(dot)), it = index_type();
  const int rows = tile.rows, columns = tile.columns;
  const std::int64_t n = dot.n.bound;
  const std::int64_t widest = 16 / static_cast<std::int64_t>(size_of(factor_dtype(dot)));
  const bool rows_together = !rows_go_first(dot), columns_together = columns_lie_together(dot, columns);
  const bool near = part.kept != nullptr && !part.in_registers;
  // Words of several numbers: along the sum for rows, across columns. What lies in panels has whole vectors of columns.
  const KDim last = s.k.empty() ? KDim{} : s.k.back();
  const bool whole_words = last.extent.is_static() && part.steps % widest == 0;
  std::int64_t ahead = 1;
  if (staged.is_staged()) {
    if (whole_words && s.depth() % widest == 0) ahead = widest;
  } else if (!s.k.empty() && last.a_stride == 1 && whole_words && is_aligned(s.a, widest) && s.a_m % widest == 0 &&
             std::ranges::all_of(s.k.begin(), s.k.end() - 1, [&](const KDim& k) { return k.a_stride % widest == 0; })) {
    ahead = widest;
  }
  bool columns_at_once = columns_together && columns <= widest && !part.in_registers;
  if (!near)
    columns_at_once =
        columns_at_once && is_aligned(s.b, columns) &&
        (s.packed() ? s.panel % columns == 0
                    : s.b_n == 1 && std::ranges::all_of(s.k, [&](const KDim& k) { return k.b_stride % columns == 0; }));
  // Or rows that lie side by side, in words of `of_a_word`.
  const std::int64_t of_a_word = std::min<std::int64_t>(rows, widest);
  const bool rows_at_once = !staged.is_staged() && ahead == 1 && rows > 1 && rows % of_a_word == 0 &&
                            (of_a_word & (of_a_word - 1)) == 0 && rows_together && s.a_m == 1 && dot.m.is_static() &&
                            dot.m.bound % rows == 0 && is_aligned(s.a, of_a_word) &&
                            std::ranges::all_of(s.k, [&](const KDim& k) { return k.a_stride % of_a_word == 0; });

  open("");
  const auto at = [](const char* what, int i) { return what + std::to_string(i); };
  for (int i = 0; i < (rows_at_once ? 1 : rows); ++i)
    line("const " + t + "* const " + at("left", i) + " = " +
         (staged.is_staged() ? "left + " + scaled(staged.row, at("m", i))
                             : pointer(s.a) + " + " + scaled(s.a_m, at("m", i))) +
         ";");
  const int num_right = columns_at_once ? 1 : columns;
  if (near) {
    for (int j = 0; j < num_right; ++j)
      line("const " + t + "* const " + at("right", j) + " = (const " + t + "*)(near + " +
           number(part.kept->near_begin) + ") + " + in_part(at("n", j)) + ";");
  } else if (!part.in_registers) {
    write_right_pointers(dot, s, num_right);
  }
  // Indices along the last dim of k, and along the one before where that is no loop of its own.
  struct Place {
    std::string last, before_last = {};
  };
  struct Indices {
    std::string a, b, step;
  };
  const auto indices = [&](const Place& place) {
    Indices at_k;
    for (std::size_t i = 0; i < s.k.size(); ++i) {
      const bool is_before_last = i + 2 == s.k.size() && !place.before_last.empty();
      const std::string k = i + 1 == s.k.size() ? place.last
                            : is_before_last    ? place.before_last
                                                : "k" + std::to_string(i);
      if (s.k[i].a_stride != 0) at_k.a += (at_k.a.empty() ? "" : " + ") + scaled(s.k[i].a_stride, k);
      if (s.k[i].b_stride != 0) at_k.b += (at_k.b.empty() ? "" : " + ") + scaled(s.k[i].b_stride, k);
      at_k.step = at_k.step.empty() ? k : "(" + at_k.step + ") * " + number(s.k[i].extent.bound) + " + " + k;
    }
    for (std::string* text : {&at_k.a, &at_k.b, &at_k.step})
      if (text->empty()) *text = "0";
    if (staged.is_staged()) at_k.a = at_k.step;
    return at_k;
  };
  const std::string a_word = std::to_string(ahead > 1 ? ahead : of_a_word), b_word = std::to_string(columns);
  const std::string a_type = ahead > 1 || rows_at_once ? "hl_pack<" + t + ", " + a_word + ">" : t,
                    b_type = columns_at_once ? "hl_pack<" + t + ", " + b_word + ">" : t;
  const int num_left = rows_at_once ? rows / static_cast<int>(of_a_word) : rows;
  const auto x_name = [&](std::int64_t i, std::int64_t w) { return "x" + std::to_string(i) + "_" + std::to_string(w); };
  const auto y_name = [&](std::int64_t j, std::int64_t step) {
    return "y" + std::to_string(j) + "_" + std::to_string(step);
  };
  // Words of rows, one a place, and what they are multiplied by, in variables of the prefix, which are there already or not.
  const auto read = [&](const std::string& prefix, const std::vector<Place>& places, bool again = false) {
    for (std::int64_t w = 0; w < std::ssize(places); ++w) {
      const Place& place = places[static_cast<std::size_t>(w)];
      const Indices at_k = indices(place);
      for (int i = 0; i < num_left; ++i) {
        const std::string from = (rows_at_once ? "left0 + " + number(i * of_a_word) : at("left", i)) + " + " + at_k.a;
        line((again ? "" : a_type + " ") + prefix + x_name(i, w) + " = " +
             (a_type == t ? "*(" + from + ")" : "hl_read<" + a_word + ">(" + from + ")") + ";");
      }
      for (std::int64_t e = 0; e < ahead; ++e)
        for (int j = 0; j < num_right; ++j) {
          const std::string name = prefix + y_name(j, w * ahead + e), later = e > 0 ? " + " + number(e) : "";
          if (part.in_registers) {
            line("const " + b_type + " " + name + " = " + part.kept->registers + "[" +
                 scaled(columns, "(" + place.last + later + ")") + " + " + number(j) + "];");
            continue;
          }
          const std::string index =
              near ? "(" + place.last + later + " - " + number(part.begin) + ") * " + number(n)
                   : right_index(dot, s, j, at_k.b + (e > 0 ? " + " + number(e * last.b_stride) : ""),
                                 at_k.step + later);
          const std::string from = at("right", j) + " + " + index;
          line((again ? "" : b_type + " ") + name + " = " +
               (columns_at_once ? "hl_read<" + b_word + ">(" + from + ")" : "*(" + from + ")") + ";");
        }
    }
  };
  const auto add = [&](std::int64_t words, const std::string& prefix = "") {
    for (std::int64_t step = 0; step < words * ahead; ++step)
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
          std::string x = prefix + x_name(rows_at_once ? i / of_a_word : i, step / ahead);
          if (ahead > 1) x += ".of[" + number(step % ahead) + "]";
          if (rows_at_once) x += ".of[" + number(i % of_a_word) + "]";
          std::string y = prefix + y_name(columns_at_once ? 0 : j, step);
          if (columns_at_once) y += ".of[" + number(j) + "]";
          const std::string sum = "s" + std::to_string(i) + "_" + std::to_string(j);
          line(sum + " = " + product(dot, x, y, sum) + ";");
        }
  };
  const std::size_t num_dims = s.k.size();
  const std::string k = "k" + std::to_string(num_dims == 0 ? 0 : num_dims - 1);
  const auto open_outer_loops = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) open_loop("k" + std::to_string(i), extent(s.k[i].extent));
  };
  const auto close_loops = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) close();
  };
  const auto add_one_by_one = [&](const std::string& begin, std::int64_t at_once) {
    line("HL_UNROLL(" + number(at_once) + ")");
    open_loop(k, part.end, begin, number(ahead));
    read("", {{k}});
    add(1);
    close();
  };
  const Groups groups = part.in_registers ? Groups{} : groups_of(s, part.steps, rows + columns, ahead);
  if (num_dims == 0) {
    read("", {{"0"}});
    add(1);
  } else if (groups.count < 2) {
    open_outer_loops(num_dims - 1);
    // Registers have no addresses: every step is written out.
    add_one_by_one(number(part.begin), part.in_registers ? part.steps / ahead : ahead > 1 ? 4 : 8);
    close_loops(num_dims - 1);
  } else {
    const std::int64_t in_a_group = groups.words * ahead, inner = last.extent.bound;
    const auto places = [&](const std::string& g) {
      std::vector<Place> all;
      for (std::int64_t w = 0; w < groups.words; ++w) {
        const std::int64_t step = w * ahead;
        const auto plus = [](const std::string& what, std::int64_t more) {
          return more == 0 ? what : "(" + what + " + " + number(more) + ")";
        };
        if (groups.num_dims == 1) {
          all.push_back({plus(g, step)});
        } else if (in_a_group <= inner) {
          const std::string in_a_row = number(inner / in_a_group);
          all.push_back({plus("(" + g + " % " + in_a_row + " * " + number(in_a_group) + ")", step),
                         "(" + g + " / " + in_a_row + ")"});
        } else {
          all.push_back({number(step % inner), plus("(" + g + " * " + number(in_a_group / inner) + ")", step / inner)});
        }
      }
      return all;
    };
    // Those of the next group are on their way while these are multiplied, by turns in two sets of variables.
    const std::size_t num_outer = num_dims - static_cast<std::size_t>(groups.num_dims);
    const bool is_one_dim = groups.num_dims == 1;
    const std::int64_t by = is_one_dim ? in_a_group : 1, begin = is_one_dim ? part.begin : 0,
                       last = begin + (groups.count - 1) * by, turns = (groups.count - 1) / 2;
    const std::string g = is_one_dim ? k : "group", end = number(begin + groups.count * by);
    open_outer_loops(num_outer);
    read("", places(number(begin)));
    if (turns > 0) {
      line("HL_UNROLL(1)");
      open_loop(g, number(begin + 2 * turns * by), number(begin), number(2 * by));
      read("n", places("(" + g + " + " + number(by) + ")"));
      add(groups.words);
      read("", places("(" + g + " + " + number(2 * by) + ")"), true);
      add(groups.words, "n");
      close();
    }
    if (groups.count % 2 == 0) read("n", places(number(last)));
    add(groups.words);
    if (groups.count % 2 == 0) add(groups.words, "n");
    if (is_one_dim && groups.count * in_a_group < part.steps) add_one_by_one(end, 1);
    close_loops(num_outer);
  }
  close();
}

}  // namespace hotloop::render
