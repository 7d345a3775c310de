#include "backends/render/panel_dot.h"

#include <algorithm>

#include "backends/render/renderer.h"
#include "core/index.h"

namespace hotloop::render {

using namespace kernel;

bool PanelDotWriter::is_aligned(const Access& access, std::int64_t numbers) {
  if (!access.indirect.empty() || access.index.constant % numbers != 0) return false;
  return std::ranges::all_of(access.index.terms, [&](const Term& t) { return t.coefficient % numbers == 0; });
}

std::optional<PanelDotWriter::Panels> PanelDotWriter::panels_of(const Dot& dot) {
  // Below, what is waited for is little.
  constexpr std::int64_t fewest_panels = 12, fewest_products = 2048;
  if (dot.segments.size() != 1 || !dot.m.is_static()) return {};
  const DotSegment& s = dot.segments[0];
  const std::int64_t m = dot.m.bound, n = dot.n.bound;
  if (s.packed() || s.k.empty() || s.a_m != 1 || s.b_n != 1 || m * n < fewest_products) return {};
  if (!is_far(s.a) || !is_far(s.b) || !s.a.indirect.empty() || !s.b.indirect.empty()) return {};
  if (outermost_loop(s.b) < loops_.size()) return {};
  const auto size = static_cast<std::int64_t>(size_of(factor_dtype(dot)));
  Panels panels;
  panels.tile = choose_register_tile(m, n, dot.dtype, threads_);
  panels.column_groups = divided_up(n, panels.tile.columns);
  if (panels.column_groups > threads_) return {};
  const std::int64_t row_groups = std::min(threads_ / panels.column_groups, divided_up(m, panels.tile.rows));
  panels.rows = row_groups * panels.tile.rows;
  panels.left_row = divided_up(panels.rows, 4) * 4;
  panels.right_row = divided_up(n, 4) * 4;
  const auto fits = [&](std::int64_t width, bool left) {
    return width * size <= 16 && (left ? m : n) % width == 0 && (!left || panels.rows % width == 0) &&
           is_aligned(left ? s.a : s.b, width) &&
           std::ranges::all_of(s.k, [&](const KDim& k) { return (left ? k.a_stride : k.b_stride) % width == 0; });
  };
  for (const std::int64_t width : {2, 4}) {
    if (fits(width, true)) panels.left_width = width;
    if (fits(width, false)) panels.right_width = width;
  }
  for (const auto& [steps, stages] : {std::pair{8, 6}, {8, 4}, {8, 3}, {4, 4}, {4, 3}}) {
    panels.steps = steps;
    panels.stages = stages;
    panels.bytes = near_bytes_of(stages * steps * (panels.left_row + panels.right_row) * size);
    if (s.depth() >= fewest_panels * steps && has_near_room(panels.bytes)) return panels;
  }
  return {};
}

// A function `copy` that has the threads copy a panel of both factors, as far as there are steps, into a stage. A thread has the same places of every panel.
void PanelDotWriter::render_copies(const Dot& dot, const Panels& panels) {
  const DotSegment s = merged(dot.segments[0], false);
  const std::string it = index_type(), t = type(factor_dtype(dot)), m = number(dot.m.bound),
                    steps = number(panels.steps);
  std::string copies;
  for (const bool left : {true, false}) {
    const std::int64_t row = left ? panels.left_row : panels.right_row,
                       width = left ? panels.left_width : panels.right_width,
                       words = divided_up(left ? panels.rows : dot.n.bound, width), all = panels.steps * words;
    const std::string from = pointer(left ? s.a : s.b) + (left ? " + m_begin" : parts_ > 1 ? " + first_column" : "");
    for (std::int64_t place = 0; place * threads_ < all; ++place) {
      const std::string id = (left ? "l" : "r") + std::to_string(place), p = "p_" + id, k = "k_" + id, at = "at_" + id;
      line("const " + it + " " + p + " = hl_block_thread() + " + number(place * threads_) + ", " + k + " = " + p +
           " / " + number(words) + ", " + at + " = " + p + " % " + number(words) + " * " + number(width) + ";");
      std::string when = k + " < steps_left";
      if ((place + 1) * threads_ > all) when += " && " + p + " < " + number(all);
      if (left && dot.m.bound % panels.rows != 0) when += " && m_begin + " + at + " < " + m;
      const std::string to = "to + " + (left ? std::string() : number(panels.steps * panels.left_row) + " + ") + k +
                             " * " + number(row) + " + " + at;
      const std::string index = index_of_step(s.k, left, "(panel * " + steps + " + " + k + ")");
      copies += "  if (" + when + ") hl_copy<" + number(width) + ">(" + to + ", " + from + " + " + at + index + ");\n";
    }
  }
  line("const auto copy = [&](" + it + " panel, " + t + "* to) {");
  line("  const " + it + " steps_left = num_steps - panel * " + steps + ";");
  out_ += copies;
  line("  hl_copies_begun();");
  line("};");
}

void PanelDotWriter::render_by_panels(const Dot& dot, const Panels& panels) {
  const std::string t = type(factor_dtype(dot)), c_type = type(dot.dtype), it = index_type();
  const int rows = panels.tile.rows, columns = panels.tile.columns;
  const std::int64_t m = dot.m.bound, n = dot.n.bound, panel = panels.steps * (panels.left_row + panels.right_row);
  const bool together = columns_lie_together(dot, columns);
  open("");
  line(comment("dot " + dot.name + ", by panels"));
  line(t + "* const panels = (" + t + "*)(near + " + number(near_for_now(panels.bytes)) + ");");
  std::string num_steps;
  for (const KDim& k : dot.segments[0].k) num_steps += (num_steps.empty() ? "" : " * ") + extent(k.extent);
  const std::string steps = number(panels.steps);
  line("const " + it + " num_steps = " + num_steps + ", num_panels = (num_steps + " + number(panels.steps - 1) +
       ") / " + steps + ";");
  line("const " + it + " ng = hl_block_thread() % " + number(panels.column_groups) + ", mg = hl_block_thread() / " +
       number(panels.column_groups) + ";");
  open("for (" + it + " m_begin = 0; m_begin < " + number(m) + "; m_begin += " + number(panels.rows) + ")");
  // Threads without rows compute the first ones, and store nothing.
  line("const bool has_rows = mg < " + number(panels.rows / rows) + ";");
  line("const " + it + " first = has_rows ? " + scaled(rows, "mg") + " : 0;");
  for (int i = 0; i < rows; ++i) {
    const std::string row = "m_begin + first + " + number(i);
    line("const " + it + " m" + std::to_string(i) + " = " + row + " < " + number(m) + " ? " + row + " : " +
         number(m - 1) + ";");
  }
  write_columns(dot, columns);
  const auto sum = [](int i, int j) { return "s" + std::to_string(i) + "_" + std::to_string(j); };
  const auto place = [](std::int64_t by_row, std::int64_t by_column, int i, int j) {
    return scaled(by_row, "m" + std::to_string(i)) + " + " + scaled(by_column, "n" + std::to_string(j));
  };
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      line(c_type + " " + sum(i, j) + " = " +
           (dot.init ? "(" + pointer(*dot.init) + ")[" + place(dot.init_m, dot.init_n, i, j) + "]" : "0") + ";");
  render_copies(dot, panels);
  line("HL_UNROLL(1)");
  line("for (" + it + " q = 0; q < " + number(panels.stages - 1) + "; ++q) copy(q, panels + " + scaled(panel, "q") +
       ");");
  line("const " + t + "* now = panels;");
  line(t + "* later = panels + " + number((panels.stages - 1) * panel) + ";");
  open_loop("q", "num_panels");
  line("hl_copies_wait<" + number(panels.stages - 2) + ">();");
  line("hl_block_sync();");
  line("copy(q + " + number(panels.stages - 1) + ", later);");
  line("const " + t + "* const left = now + first;");
  line("const " + t + "* const right = now + " + number(panels.steps * panels.left_row) + ";");
  const std::string end = "panels + " + number(panels.stages * panel);
  for (const char* stage : {"now", "later"})
    line(std::string(stage) + " = " + stage + " + " + number(panel) + " < " + end + " ? " + stage + " + " +
         number(panel) + " : panels;");
  const std::int64_t widest = 16 / static_cast<std::int64_t>(size_of(factor_dtype(dot)));
  std::int64_t of_a_word = widest;
  while (rows % of_a_word != 0) of_a_word /= 2;
  const bool at_once = together && columns <= widest;
  const auto add_step = [&] {
    for (int i = 0; i < rows / of_a_word; ++i)
      line("const hl_pack<" + t + ", " + number(of_a_word) + "> x" + std::to_string(i) + " = hl_read<" +
           number(of_a_word) + ">(left + " + scaled(panels.left_row, "k") + " + " + number(i * of_a_word) + ");");
    for (int j = 0; j < (at_once ? 1 : columns); ++j) {
      const std::string from = "right + " + scaled(panels.right_row, "k") + " + " + in_part("n" + std::to_string(j));
      line("const " + (at_once ? "hl_pack<" + t + ", " + number(columns) + ">" : t) + " y" + std::to_string(j) + " = " +
           (at_once ? "hl_read<" + number(columns) + ">(" + from + ")" : "*(" + from + ")") + ";");
    }
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) {
        const std::string x = "x" + std::to_string(i / of_a_word) + ".of[" + number(i % of_a_word) + "]",
                          y = at_once ? "y0.of[" + number(j) + "]" : "y" + std::to_string(j);
        line(sum(i, j) + " = " + product(dot, x, y, sum(i, j)) + ";");
      }
  };
  open("if ((q + 1) * " + steps + " <= num_steps)");
  line("HL_UNROLL(4)");
  open_loop("k", steps);
  add_step();
  close();
  open_else();
  open_loop("k", "num_steps - q * " + steps);
  add_step();
  close();
  close();
  close();
  // The next rows' panels come where these still are read.
  line("hl_block_sync();");
  line(c_type + "* const c = " + pointer(dot.c) + ";");
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      std::string when = "has_rows && m_begin + first + " + number(i) + " < " + number(m);
      if (j > 0 && !together && n % columns != 0)
        when += " && ng + " + scaled(j, number(panels.column_groups)) + " < " + number(n);
      line("if (" + when + ") " + store(dot.c.buffer, "c[" + place(dot.c_m, dot.c_n, i, j) + "]", sum(i, j)));
    }
  close();
  close();
}

}  // namespace hotloop::render
