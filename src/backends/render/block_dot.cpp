#include "backends/render/block_dot.h"

#include <algorithm>
#include <limits>

#include "backends/render/block_writer.h"
#include "backends/render/renderer.h"
#include "core/index.h"

namespace hotloop::render {

using namespace kernel;

// What a multiprocessor does in a step of the sum: it reads a row's factor once for all threads of a warp, a column's for each, 32 words at a time. Each of
// its schedulers adds a warp's products one after the other; what a warp waits for it hides behind others.
RegisterTile choose_register_tile(std::int64_t m, std::int64_t n, DType dtype, int threads) {
  constexpr int most_sums = 32;
  constexpr double warp = 32, schedulers = 4, read_ahead = 4, counting = 1.3, latency = 3;
  const double words = static_cast<double>(size_of(dtype)) / 4;
  RegisterTile best;
  double least = std::numeric_limits<double>::infinity();
  for (const int rows : {1, 2, 3, 4, 6, 8})
    for (const int columns : {1, 2, 4}) {
      if (rows * columns > most_sums || (rows > 1 && rows > m) || (columns > 1 && columns > n)) continue;
      const std::int64_t items = divided_up(m, rows) * divided_up(n, columns);
      const std::int64_t rounds = divided_up(items, threads);
      const double warps = static_cast<double>(std::min<std::int64_t>(items, threads)) / warp;
      const double turns = std::max(1.0, warps / schedulers);
      const double lines = warps * words * (columns + rows / 8.0);
      const double instructions = turns * (1 + rows / read_ahead + words * rows * columns + counting);
      const double time = static_cast<double>(rounds) * std::max(lines, instructions + latency / turns);
      if (time < least) {
        least = time;
        best = {rows, columns};
      }
    }
  return best;
}

struct BlockDotWriter::Shape {
  RegisterTile tile;
  bool rows_side_by_side = false;     // a thread's rows are neighbours, else they are a stripe of all
  bool columns_side_by_side = false;  // likewise
};

// Whether so many numbers from each index of the access on, and from multiples of so many, are one aligned word.
bool BlockDotWriter::is_aligned(const Access& access, std::int64_t numbers) const {
  if (!access.indirect.empty() || access.index.constant % numbers != 0) return false;
  return std::ranges::all_of(access.index.terms, [&](const Term& t) { return t.coefficient % numbers == 0; });
}

// Of a segment: its left factor in near memory, rows of `depth` numbers that are `row` apart.
struct BlockDotWriter::Staged {
  bool is_staged = false;
  std::int64_t begin = 0, row = 0;  // bytes behind the program's own near memory; elements
};

// Of each segment, and the room that they take.
struct BlockDotWriter::StagedFactors {
  std::vector<Staged> of_segments;
  std::int64_t bytes = 0;
};

// Every column reads a left factor again: far away, each step of a sum would wait for it. Written near once, by all threads together, they wait once.
BlockDotWriter::StagedFactors BlockDotWriter::staged_factors(const Dot& dot) const {
  constexpr std::int64_t most_bytes = 16 << 10, few_columns = 8;
  const auto size = static_cast<std::int64_t>(size_of(factor_dtype(dot))), widest = 16 / size;
  StagedFactors all{std::vector<Staged>(dot.segments.size())};
  for (std::size_t i = 0; i < dot.segments.size(); ++i) {
    const DotSegment& s = dot.segments[i];
    const std::int64_t depth = s.depth(), row = depth % widest == 0 ? depth + widest : depth | 1;
    const std::int64_t needed = (dot.m.bound * row * size + 15) / 16 * 16;
    const bool is_static = std::ranges::all_of(s.k, [](const KDim& k) { return k.extent.is_static(); });
    const bool has_room = all.bytes + needed <= most_bytes;
    if (!is_far(s.a) || dot.n.bound < few_columns || !is_static || depth == 0 || !has_room) continue;
    all.of_segments[i] = {true, all.bytes, row};
    all.bytes += needed;
  }
  return all;
}

bool BlockDotWriter::stages(const Dot& dot) const { return staged_factors(dot).bytes > 0; }

void BlockDotWriter::render_staging(const Dot& dot, const std::vector<Staged>& staged) {
  const std::string t = type(factor_dtype(dot)), it = index_type();
  for (std::size_t i = 0; i < staged.size(); ++i) {
    if (!staged[i].is_staged) continue;
    const DotSegment& s = dot.segments[i];
    const std::string depth = number(s.depth()), m_end = extent(dot.m);
    // Neighbouring threads read side by side.
    const bool rows_first = s.a_m == 1 && (s.k.empty() || s.k.back().a_stride != 1);
    const std::string places = rows_first ? "const " + it + " m = p % (" + m_end + "), k = p / (" + m_end + ");"
                                          : "const " + it + " k = p % " + depth + ", m = p / " + depth + ";";
    std::string at = scaled(s.a_m, "m"), rest = "k";
    for (std::size_t d = s.k.size(); d-- > 0;) {
      const std::string size = number(s.k[d].extent.bound);
      const std::string place = d == 0 ? rest : rest + " % " + size;
      if (s.k[d].a_stride != 0) at += " + " + scaled(s.k[d].a_stride, "(" + place + ")");
      rest = "(" + rest + " / " + size + ")";
    }
    const std::string from = "(" + pointer(s.a) + ")[" + at + "]", count = "(" + m_end + ") * " + depth,
                      to = "to[" + scaled(staged[i].row, "m") + " + k] = ";
    const std::int64_t step = dot.m.bound * s.depth() <= threads_ ? step_ahead(s.a) : 0;
    open("");
    line(t + "* const to = (" + t + "*)(staged + " + std::to_string(staged[i].begin) + ");");
    if (step != 0) {
      const std::string p = "const " + it + " p = hl_thread();\n  if (p < " + count + ") { " + places;
      const std::string next = carried_register(factor_dtype(dot), "  " + p + " $next = " + from + "; }\n");
      line("const " + it + " p = hl_thread();");
      open("if (p < " + count + ")");
      line(places);
      line(to + next + ";");
      line(next_read(next, from, step));
    } else {
      open("for (" + it + " p = hl_thread(); p < " + count + "; p += HL_THREADS)");
      line(places);
      line(to + from + ";");
    }
    close();
    close();
  }
  line("hl_sync();");
}

void BlockDotWriter::render_dot(const Dot& dot) {
  const std::string t = type(dot.dtype), it = index_type();
  const std::int64_t n = dot.n.bound;
  if (n == 0 || dot.m.bound == 0) return;
  Shape shape;
  shape.tile = choose_register_tile(dot.m.bound, n, dot.dtype, threads_);
  const int rows = shape.tile.rows, columns = shape.tile.columns;
  // Neighbouring threads take neighbours of what lies side by side in the result.
  const bool rows_first = dot.c_m == 1 && dot.c_n != 1;
  shape.rows_side_by_side = !rows_first;
  shape.columns_side_by_side = columns > 1 && n % columns == 0;
  open("");
  line("// dot " + dot.name);
  line("const " + it + " m_end = " + extent(dot.m) + ";");
  const std::string groups = rows > 1 ? "row_groups" : "m_end", column_groups = number(divided_up(n, columns));
  if (rows > 1) line("const " + it + " row_groups = ((m_end + " + number(rows - 1) + ") / " + number(rows) + ");");
  const StagedFactors staged = staged_factors(dot);
  if (staged.bytes > 0) render_staging(dot, staged.of_segments);
  staged_bytes_ = std::max(staged_bytes_, staged.bytes);
  open("for (" + it + " p = hl_thread(); p < " + groups + " * " + column_groups + "; p += HL_THREADS)");
  if (rows_first)
    line("const " + it + " mg = p % " + groups + ", ng = p / " + groups + ";");
  else
    line("const " + it + " ng = p % " + column_groups + ", mg = p / " + column_groups + ";");
  for (int i = 0; i < rows; ++i) {
    const std::string m =
        shape.rows_side_by_side ? scaled(rows, "mg") + " + " + number(i) : "mg + " + scaled(i, groups);
    const std::string name = "m" + std::to_string(i);
    line("const " + it + " " + name + " = " +
         (rows == 1 ? "mg"
          : i == 0  ? m
                    : m + " < m_end ? " + m + " : m_end - 1") +
         ";");
  }
  for (int j = 0; j < columns; ++j) {
    const std::string column =
        shape.columns_side_by_side ? scaled(columns, "ng") + " + " + number(j) : "ng + " + scaled(j, column_groups);
    const bool may_stray = !shape.columns_side_by_side && j > 0 && n % columns != 0;
    line("const " + it + " n" + std::to_string(j) + " = " +
         (j == 0      ? (shape.columns_side_by_side ? scaled(columns, "ng") : "ng")
          : may_stray ? column + " < " + number(n) + " ? " + column + " : " + number(n - 1)
                      : column) +
         ";");
  }
  const auto sum = [](int i, int j) { return "s" + std::to_string(i) + "_" + std::to_string(j); };
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      std::string start = "0";
      if (dot.init)
        start = name(dot.init->buffer) + "[" + affine(dot.init->index) + " + " +
                scaled(dot.init_m, "m" + std::to_string(i)) + " + " + scaled(dot.init_n, "n" + std::to_string(j)) + "]";
      line(t + " " + sum(i, j) + " = " + start + ";");
    }
  for (std::size_t i = 0; i < dot.segments.size(); ++i)
    render_segment(dot, dot.segments[i], shape, staged.of_segments[i]);
  line(t + "* const c = " + pointer(dot.c) + ";");
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      std::string when;
      if (i > 0)
        when = shape.rows_side_by_side ? scaled(rows, "mg") + " + " + number(i) + " < m_end"
                                       : "mg + " + scaled(i, groups) + " < m_end";
      if (j > 0 && !shape.columns_side_by_side && n % columns != 0)
        when += (when.empty() ? "" : " && ") + ("ng + " + scaled(j, column_groups)) + " < " + number(n);
      line((when.empty() ? "" : "if (" + when + ") ") + "c[" + scaled(dot.c_m, "m" + std::to_string(i)) + " + " +
           scaled(dot.c_n, "n" + std::to_string(j)) + "] = " + sum(i, j) + ";");
    }
  close();
  close();
}

void BlockDotWriter::render_segment(const Dot& dot, const DotSegment& s, const Shape& shape, const Staged& staged) {
  const std::string t = type(factor_dtype(dot)), it = index_type();
  const int rows = shape.tile.rows, columns = shape.tile.columns;
  const std::int64_t lanes = lanes_of(dot.dtype), n = dot.n.bound, depth = s.depth(),
                     padded = divided_up(n, lanes) * lanes, panel = s.panel;
  const std::int64_t widest = 16 / static_cast<std::int64_t>(size_of(factor_dtype(dot)));
  // Words of several numbers: along the sum for rows, across columns. What lies in panels has whole vectors of columns.
  const KDim last = s.k.empty() ? KDim{} : s.k.back();
  std::int64_t ahead = 1;
  if (staged.is_staged) {
    if (last.extent.bound % widest == 0) ahead = widest;
  } else if (!s.k.empty() && last.a_stride == 1 && last.extent.is_static() && last.extent.bound % widest == 0 &&
             is_aligned(s.a, widest) && s.a_m % widest == 0 &&
             std::ranges::all_of(s.k.begin(), s.k.end() - 1, [&](const KDim& k) { return k.a_stride % widest == 0; }))
    ahead = widest;
  bool columns_at_once = shape.columns_side_by_side && columns <= widest && is_aligned(s.b, columns);
  if (s.packed())
    columns_at_once = columns_at_once && panel % columns == 0;
  else
    columns_at_once = columns_at_once && s.b_n == 1 &&
                      std::ranges::all_of(s.k, [&](const KDim& k) { return k.b_stride % columns == 0; });
  // Or rows that lie side by side, in words of `of_a_word`.
  const std::int64_t of_a_word = std::min<std::int64_t>(rows, widest);
  const bool rows_at_once = !staged.is_staged && ahead == 1 && rows > 1 && rows % of_a_word == 0 &&
                            (of_a_word & (of_a_word - 1)) == 0 && shape.rows_side_by_side && s.a_m == 1 &&
                            dot.m.is_static() && dot.m.bound % rows == 0 && is_aligned(s.a, of_a_word) &&
                            std::ranges::all_of(s.k, [&](const KDim& k) { return k.a_stride % of_a_word == 0; });

  open("");
  const auto at = [](const char* what, int i) { return what + std::to_string(i); };
  if (staged.is_staged)
    line("const " + t + "* const left = (const " + t + "*)(staged + " + std::to_string(staged.begin) + ");");
  for (int i = 0; i < (rows_at_once ? 1 : rows); ++i)
    line("const " + t + "* const " + at("left", i) + " = " +
         (staged.is_staged ? "left + " + scaled(staged.row, at("m", i))
                           : pointer(s.a) + " + " + scaled(s.a_m, at("m", i))) +
         ";");
  for (int j = 0; j < (columns_at_once ? 1 : columns); ++j) {
    const std::string column = at("n", j), pointer_name = at("right", j);
    if (!s.packed()) {
      line("const " + t + "* const " + pointer_name + " = " + pointer(s.b) + " + " + scaled(s.b_n, column) + ";");
    } else if (padded <= panel) {
      line("const " + t + "* const " + pointer_name + " = " + pointer(s.b) + " + " + column + ";");
    } else {
      const std::string first = at("f", j);
      line("const " + it + " " + first + " = " + column + " / " + number(panel) + " * " + number(panel) + ";");
      line("const " + t + "* const " + pointer_name + " = " + pointer(s.b) + " + " + first + " * " + number(depth) +
           " + (" + column + " - " + first + ");");
      if (padded % panel != 0)
        line("const " + it + " " + at("w", j) + " = " + number(padded) + " - " + first + " < " + number(panel) + " ? " +
             number(padded) + " - " + first + " : " + number(panel) + ";");
    }
  }
  // Of a step of the sum, where `last_k` counts the innermost dim.
  struct Indices {
    std::string a, b, step;
  };
  const auto indices = [&](const std::string& last_k) {
    Indices at_k;
    for (std::size_t i = 0; i < s.k.size(); ++i) {
      const std::string k = i + 1 == s.k.size() ? last_k : "k" + std::to_string(i);
      if (s.k[i].a_stride != 0) at_k.a += (at_k.a.empty() ? "" : " + ") + scaled(s.k[i].a_stride, k);
      if (s.k[i].b_stride != 0) at_k.b += (at_k.b.empty() ? "" : " + ") + scaled(s.k[i].b_stride, k);
      at_k.step = at_k.step.empty() ? k : "(" + at_k.step + ") * " + number(s.k[i].extent.bound) + " + " + k;
    }
    for (std::string* text : {&at_k.a, &at_k.b, &at_k.step})
      if (text->empty()) *text = "0";
    if (staged.is_staged) at_k.a = at_k.step;
    return at_k;
  };
  const std::string a_word = std::to_string(ahead > 1 ? ahead : of_a_word), b_word = std::to_string(columns);
  const std::string a_type = ahead > 1 || rows_at_once ? "hl_pack<" + t + ", " + a_word + ">" : t,
                    b_type = columns_at_once ? "hl_pack<" + t + ", " + b_word + ">" : t;
  // So many words of rows and what they are multiplied by, from index `k` on, in variables of the prefix.
  const int num_left = rows_at_once ? rows / static_cast<int>(of_a_word) : rows;
  const int num_right = columns_at_once ? 1 : columns;
  const auto read = [&](const std::string& prefix, const std::string& k, std::int64_t words) {
    const Indices at_k = indices(k);
    for (std::int64_t w = 0; w < words; ++w) {
      for (int i = 0; i < num_left; ++i) {
        const std::string name = prefix + "x" + std::to_string(i) + "_" + std::to_string(w);
        std::string from = (rows_at_once ? "left0 + " + number(i * of_a_word) : at("left", i)) + " + " + at_k.a;
        if (w > 0) from += " + " + number(w * ahead);
        line(a_type + " " + name + " = " + (a_type == t ? "*(" + from + ")" : "hl_read<" + a_word + ">(" + from + ")") +
             ";");
      }
      for (std::int64_t k_in = w * ahead; k_in < (w + 1) * ahead; ++k_in)
        for (int j = 0; j < num_right; ++j) {
          const std::string name = prefix + "y" + std::to_string(j) + "_" + std::to_string(k_in);
          std::string from;
          if (!s.packed()) {
            from = at_k.b + (k_in > 0 ? " + " + number(k_in * last.b_stride) : "");
          } else {
            const std::string width = padded <= panel       ? number(padded)
                                      : padded % panel == 0 ? number(panel)
                                                            : at("w", j);
            from = "(" + at_k.step + (k_in > 0 ? " + " + number(k_in) : "") + ") * " + width;
          }
          from = at("right", j) + " + " + from;
          line(b_type + " " + name + " = " +
               (columns_at_once ? "hl_read<" + b_word + ">(" + from + ")" : "*(" + from + ")") + ";");
        }
    }
  };
  const auto add = [&](std::int64_t words) {
    for (std::int64_t k_in = 0; k_in < words * ahead; ++k_in)
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
          const std::int64_t word = k_in / ahead, of_rows = rows_at_once ? of_a_word : 1;
          std::string x = "x" + std::to_string(i / of_rows) + "_" + std::to_string(word);
          if (ahead > 1) x += ".of[" + number(k_in % ahead) + "]";
          if (rows_at_once) x += ".of[" + number(i % of_a_word) + "]";
          std::string y = "y" + std::to_string(columns_at_once ? 0 : j) + "_" + std::to_string(k_in);
          if (columns_at_once) y += ".of[" + number(j) + "]";
          const std::string sum = "s" + std::to_string(i) + "_" + std::to_string(j);
          line(sum + " = " + product(dot, x, y, sum) + ";");
        }
  };
  for (std::size_t i = 0; i + 1 < s.k.size(); ++i) open_loop("k" + std::to_string(i), extent(s.k[i].extent));
  const std::string k = "k" + std::to_string(s.k.empty() ? 0 : s.k.size() - 1);
  // Words of the next steps are on their way while these are multiplied.
  constexpr std::int64_t most_numbers = 48;
  std::int64_t words = 4;
  while (words > 1 && ((rows + columns) * ahead * words > most_numbers || last.extent.bound % (ahead * words) != 0))
    words /= 2;
  if (s.k.empty()) {
    read("", "0", 1);
    add(1);
  } else if (ahead > 1 && last.extent.bound > ahead * words) {
    read("", "0", words);
    line("HL_UNROLL(2)");
    open_loop(k, extent(last.extent), "0", number(ahead * words));
    const std::string next = "(" + k + " + " + number(ahead * words) + " < " + extent(last.extent) + " ? " + k + " + " +
                             number(ahead * words) + " : " + k + ")";
    line("const " + it + " next_k = " + next + ";");
    read("n", "next_k", words);
    add(words);
    for (std::int64_t w = 0; w < words; ++w) {
      for (int i = 0; i < num_left; ++i) {
        const std::string name = "x" + std::to_string(i) + "_" + std::to_string(w);
        line(name + " = n" + name + ";");
      }
      for (std::int64_t k_in = w * ahead; k_in < (w + 1) * ahead; ++k_in)
        for (int j = 0; j < num_right; ++j) {
          const std::string name = "y" + std::to_string(j) + "_" + std::to_string(k_in);
          line(name + " = n" + name + ";");
        }
    }
    close();
  } else {
    line(ahead > 1 ? "HL_UNROLL(4)" : "HL_UNROLL(8)");
    open_loop(k, extent(last.extent), "0", number(ahead));
    read("", k, 1);
    add(1);
    close();
  }
  for (std::size_t i = 0; i + 1 < s.k.size(); ++i) close();
  close();
}

}  // namespace hotloop::render
