#include "cli/charts.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <limits>

namespace hotloop::cli {
namespace {

constexpr double width = 760, height = 300;
constexpr double least_left = 64, right = 744, top = 58, bottom = 252;
constexpr double digit_width = 7.2;

struct Axis {
  double low = 0, high = 1, from = 0, to = 1;  // values, and where they are drawn
  bool log = false;
  std::vector<double> ticks = {};

  double place(double value) const {
    const auto linear = [&](double v) { return log ? std::log10(v) : v; };
    return from + (linear(value) - linear(low)) / (linear(high) - linear(low)) * (to - from);
  }
};

// 1, 2 or 5 times a power of ten, so that there are at most `most` steps in the range.
double nice_step(double range, int most) {
  const double raw = range / most, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

Axis linear_axis(double low, double high, double from, double to, int most, bool whole_numbers, bool widen) {
  if (!(high > low)) {
    const double margin = std::max(std::abs(low) * 0.1, 0.5);
    low -= margin;
    high += margin;
  }
  double step = nice_step(high - low, most);
  if (whole_numbers) step = std::max(1.0, step);
  Axis axis{.low = low, .high = high, .from = from, .to = to};
  if (widen) {
    axis.low = std::floor(low / step + 1e-9) * step;
    axis.high = std::ceil(high / step - 1e-9) * step;
  }
  for (double k = std::ceil(axis.low / step - 1e-9); k * step <= axis.high + step * 1e-9; ++k)
    axis.ticks.push_back(k * step);
  return axis;
}

Axis log_axis(double low, double high, double from, double to) {
  if (!(high > low)) high = low * 1.1;
  Axis axis{.low = low / 1.05, .high = high * 1.05, .from = from, .to = to, .log = true};
  // The fewest steps of a decade that leave a reader enough lines.
  for (const std::vector<double>& factors : std::vector<std::vector<double>>{{1}, {1, 3}, {1, 2, 5}, {1, 2, 3, 5, 7}}) {
    axis.ticks.clear();
    for (double power = std::pow(10, std::floor(std::log10(axis.low))); power <= axis.high; power *= 10)
      for (const double factor : factors)
        if (factor * power >= axis.low && factor * power <= axis.high) axis.ticks.push_back(factor * power);
    if (axis.ticks.size() >= 4) break;
  }
  if (axis.ticks.size() < 3) {  // a range within a decade
    const double step = nice_step(axis.high - axis.low, 5);
    axis.ticks.clear();
    for (double k = std::ceil(axis.low / step); k * step <= axis.high; ++k) axis.ticks.push_back(k * step);
  }
  return axis;
}

std::string plain_number(double value) {
  std::string text = fmt::format("{:.6f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// The numbers beside an axis' ticks: on a linear one in one unit, so that they are short and none is rounded to its neighbour.
std::vector<std::string> tick_texts(const Axis& axis) {
  double largest = 0;
  for (const double tick : axis.ticks) largest = std::max(largest, std::abs(tick));
  struct Unit {
    double size;
    const char* sign;
  };
  Unit unit{1, ""};
  if (!axis.log && largest < 1e12)
    for (const Unit& u : {Unit{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
      if (largest >= std::max(u.size, 1e5)) {
        unit = u;
        break;
      }
  std::vector<std::string> texts;
  for (const double tick : axis.ticks) {
    const double scaled = tick / unit.size, by = axis.log ? std::abs(scaled) : largest / unit.size;
    if (std::abs(tick) < 1e-9 * largest)
      texts.push_back("0");
    else if (by >= 1e6 || by < 1e-3)
      texts.push_back(fmt::format("{:.4g}", scaled));
    else
      texts.push_back(plain_number(scaled) + unit.sign);
  }
  return texts;
}

std::string text_at(double x, double y, const char* anchor, const char* style, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor, style,
                     escape_xml(text));
}

std::string line_path(const ChartSeries& series, const Axis& x, const Axis& y) {
  std::string path;
  bool pen_down = false;
  for (std::size_t i = 0; i < series.xs.size(); ++i) {
    if (!std::isfinite(series.ys[i]) || !std::isfinite(series.xs[i])) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x.place(series.xs[i]), y.place(series.ys[i]));
    if (series.points)
      path += "h0";  // with round ends a dot
    else
      pen_down = true;
  }
  return path;
}

// Numbers that are not finite are left out.
std::string band_path(const ChartBand& band, const Axis& x, const Axis& y) {
  std::string there, back;
  for (std::size_t i = 0; i < band.xs.size(); ++i) {
    if (!std::isfinite(band.xs[i]) || !std::isfinite(band.low[i]) || !std::isfinite(band.high[i])) continue;
    const double at = x.place(band.xs[i]);
    there += fmt::format("{}{:.1f} {:.1f}", there.empty() ? "M" : "L", at, y.place(band.high[i]));
    back = fmt::format("L{:.1f} {:.1f}", at, y.place(band.low[i])) + back;
  }
  return there.empty() ? "" : there + back + "Z";
}

std::string path_class(const ChartSeries& series, std::size_t i) {
  return fmt::format("hl-s{}{}", i, series.points ? " hl-points" : "");
}

std::string legend(const Chart& chart, double left) {
  std::string out;
  double x = left;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const ChartSeries& series = chart.series[i];
    const double dot = series.points ? 9 : 0;  // in the middle of where a line would be
    out += fmt::format("<line x1=\"{:.1f}\" y1=\"40\" x2=\"{:.1f}\" y2=\"40\" class=\"{}\"/>\n", x + dot, x + 18 - dot,
                       path_class(series, i));
    out += text_at(x + 24, 44, "start", "hl-text", series.name);
    x += 24 + digit_width * static_cast<double>(series.name.size()) + 22;
  }
  if (!chart.band.name.empty()) {
    out += fmt::format("<rect x=\"{:.1f}\" y=\"34\" width=\"18\" height=\"12\" class=\"hl-band\"/>\n", x);
    out += text_at(x + 24, 44, "start", "hl-text", chart.band.name);
  }
  return out;
}

std::string body(const Chart& chart) {
  double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low, y_low = x_low, y_high = -x_low;
  const auto hold = [&](const std::vector<double>& xs, const std::vector<double>& ys) {
    for (std::size_t i = 0; i < xs.size(); ++i) {
      if (!std::isfinite(ys[i]) || !std::isfinite(xs[i])) continue;
      x_low = std::min(x_low, xs[i]);
      x_high = std::max(x_high, xs[i]);
      y_low = std::min(y_low, ys[i]);
      y_high = std::max(y_high, ys[i]);
    }
  };
  for (const ChartSeries& series : chart.series) hold(series.xs, series.ys);
  hold(chart.band.xs, chart.band.low);
  hold(chart.band.xs, chart.band.high);
  if (!(x_low <= x_high))
    return text_at(least_left, 20, "start", "hl-title", chart.title) +
           text_at((least_left + right) / 2, (top + bottom) / 2, "middle", "hl-text", "no data");
  const Axis y = chart.log_y && y_low > 0 ? log_axis(y_low, y_high, bottom, top)
                                          : linear_axis(y_low, y_high, bottom, top, 6, false, true);
  const std::vector<std::string> y_texts = tick_texts(y);
  std::size_t longest = 0;
  for (const std::string& text : y_texts) longest = std::max(longest, text.size());
  const double left =
      std::max(least_left, 28 + digit_width * static_cast<double>(longest));  // the axis' name stands left of them
  const Axis x = linear_axis(x_low, x_high, left, right, 10, chart.whole_x, false);
  std::string out = text_at(left, 20, "start", "hl-title", chart.title);
  if (chart.series.size() > 1) out += legend(chart, left);
  for (std::size_t i = 0; i < y.ticks.size(); ++i) {
    const double at = y.place(y.ticks[i]);
    out +=
        fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" class=\"hl-grid\"/>\n", left, at, right, at);
    out += text_at(left - 8, at + 4, "end", "hl-text", y_texts[i]);
  }
  out +=
      fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"hl-axis\"/>\n", left, bottom, right, bottom);
  const std::vector<std::string> x_texts = tick_texts(x);
  for (std::size_t i = 0; i < x.ticks.size(); ++i) {
    const double at = x.place(x.ticks[i]);
    out += fmt::format("<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" class=\"hl-axis\"/>\n", at, bottom, at,
                       bottom + 5);
    out += text_at(at, bottom + 19, "middle", "hl-text", x_texts[i]);
  }
  out += text_at((left + right) / 2, height - 8, "middle", "hl-text", chart.x_label);
  out += fmt::format(
      "<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\" class=\"hl-text\">{}"
      "</text>\n",
      (top + bottom) / 2, escape_xml(chart.y_label + (y.log ? ", logarithmic" : "")));
  if (!chart.mark.empty()) {
    const double at = x.place(chart.mark_x);
    out +=
        fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" class=\"hl-mark\"/>\n", at, top, bottom);
    const bool leftwards = at > (left + right) / 2;
    out += text_at(at + (leftwards ? -6 : 6), top + 12, leftwards ? "end" : "start", "hl-text", chart.mark);
  }
  if (!chart.band.name.empty()) out += fmt::format("<path d=\"{}\" class=\"hl-band\"/>\n", band_path(chart.band, x, y));
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const ChartSeries& series = chart.series[i];
    out += fmt::format("<path d=\"{}\" class=\"{}\"/>\n", line_path(series, x, y), path_class(series, i));
    if (series.xs.size() == 1 && !series.points)
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" class=\"hl-s{}\"/>\n", x.place(series.xs[0]),
                         y.place(series.ys[0]), i);
  }
  return out;
}

std::string frame(const Chart& chart, const std::string& inside) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" "
      "class=\"hl-chart\">\n{}</svg>\n",
      width, height, escape_xml(chart.title), inside);
}

}  // namespace

std::string escape_xml(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

std::string chart_style() {
  return R"(.hl-chart { font: 12px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
.hl-back { fill: #ffffff; }
.hl-text { fill: #4b5563; }
.hl-title { fill: #111827; font-size: 15px; font-weight: 600; }
.hl-grid { stroke: #e5e7eb; }
.hl-axis { stroke: #9ca3af; }
.hl-mark { stroke: #9ca3af; stroke-dasharray: 4 3; }
.hl-s0, .hl-s1, .hl-s2, .hl-s3 { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.hl-points { stroke-width: 4; stroke-linecap: round; stroke-opacity: 0.5; }
.hl-band { fill: #ea580c; fill-opacity: 0.22; }
.hl-s0 { stroke: #2563eb; }
.hl-s1 { stroke: #ea580c; }
.hl-s2 { stroke: #16a34a; }
.hl-s3 { stroke: #9333ea; }
@media (prefers-color-scheme: dark) {
  .hl-back { fill: #111827; }
  .hl-text { fill: #9ca3af; }
  .hl-title { fill: #f3f4f6; }
  .hl-grid { stroke: #374151; }
  .hl-axis { stroke: #6b7280; }
  .hl-mark { stroke: #6b7280; }
  .hl-band { fill: #fb923c; }
  .hl-s0 { stroke: #60a5fa; }
  .hl-s1 { stroke: #fb923c; }
  .hl-s2 { stroke: #4ade80; }
  .hl-s3 { stroke: #c084fc; }
}
)";
}

std::string print_inline_svg(const Chart& chart) { return frame(chart, body(chart)); }

std::string print_svg(const Chart& chart) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" +
         frame(chart, fmt::format("<style>\n{}</style>\n<rect width=\"{}\" height=\"{}\" class=\"hl-back\"/>\n",
                                  chart_style(), width, height) +
                          body(chart));
}

}  // namespace hotloop::cli
