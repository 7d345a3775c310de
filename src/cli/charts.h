// Pictures of runs as SVG: light or dark as the viewer's system is.
#pragma once

#include <string>
#include <vector>

namespace hotloop::cli {

struct ChartSeries {
  std::string name;
  std::vector<double> xs = {}, ys = {};  // a NaN interrupts the line
  bool points = false;                   // each by itself, no line
};

// What lies between two lines, behind all others.
struct ChartBand {
  std::string name = {};  // none without
  std::vector<double> xs = {}, low = {}, high = {};
};

struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<ChartSeries> series = {};  // at most 4; drawn in this order
  ChartBand band = {};
  bool log_y = false;   // all ys must be positive
  bool whole_x = true;  // xs are counts: ticks at whole numbers
  double mark_x = 0;    // a vertical line there, named `mark`; none without a name
  std::string mark = {};
};

// A whole SVG file.
std::string print_svg(const Chart& chart);
// The same for the inside of an HTML page that has chart_style() in its head.
std::string print_inline_svg(const Chart& chart);
std::string chart_style();

// `text` for use between tags and in quoted attributes.
std::string escape_xml(const std::string& text);

}  // namespace hotloop::cli
