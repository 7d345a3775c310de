#include "cli/html_report.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cli/report.h"

namespace hotloop::cli {
namespace {

constexpr const char* page_style =
    R"(:root { color-scheme: light dark; --text: #111827; --soft: #4b5563; --line: #e5e7eb; --back: #ffffff; --card: #f9fafb;
  --accent: #2563eb; }
@media (prefers-color-scheme: dark) { :root { --text: #f3f4f6; --soft: #9ca3af; --line: #374151; --back: #111827;
  --card: #1f2937; --accent: #60a5fa; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
main { max-width: 820px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0; }
h2 { font-size: 18px; margin: 36px 0 10px; }
.headline { font-size: 18px; color: var(--soft); margin: 4px 0 20px; }
.status { border-left: 3px solid #ea580c; padding: 8px 12px; background: var(--card); margin: 0 0 20px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--soft); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.own td { font-weight: 600; }
.bar { width: 220px; }
.bar span { display: block; height: 10px; margin-top: 6px; border-radius: 2px; background: var(--line); }
tr.own .bar span { background: var(--accent); }
.facts td:first-child { color: var(--soft); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 12px; overflow-x: auto;
  font: 12px/1.45 ui-monospace, "SF Mono", "Liberation Mono", monospace; }
details { margin: 14px 0; }
summary { cursor: pointer; font-weight: 600; }
.confusion td { text-align: right; padding: 4px 10px; border: 1px solid var(--line); font-variant-numeric: tabular-nums; }
.confusion th { padding: 4px 10px; text-align: right; }
svg { width: 100%; height: auto; margin: 6px 0 14px; }
footer { color: var(--soft); font-size: 13px; margin-top: 40px; }
)";

std::string cell(const std::string& text, const char* tag = "td", const char* kind = "") {
  const std::string attribute = *kind ? fmt::format(" class=\"{}\"", kind) : "";
  return fmt::format("<{0}{1}>{2}</{0}>", tag, attribute, escape_xml(text));
}

// Length of each bar tells the value; zero is at the left.
std::string results_html(const ReportContent& content) {
  double most = 0;
  for (const TestResult& r : content.results)
    if (std::isfinite(r.value)) most = std::max(most, std::abs(r.value));
  std::string out = fmt::format("<h2>{}</h2>\n<table>\n", escape_xml(content.result_heading));
  for (std::size_t i = 0; i < content.results.size(); ++i) {
    const TestResult& r = content.results[i];
    const double share = most > 0 && std::isfinite(r.value) ? 100 * std::abs(r.value) / most : 0;
    out += fmt::format("<tr{}>{}{}<td class=\"bar\"><span style=\"width:{:.1f}%\"></span></td></tr>\n",
                       i == 0 ? " class=\"own\"" : "", cell(r.name), cell(score_text(r.value), "td", "number"), share);
  }
  return out + fmt::format("</table>\n<p class=\"headline\" style=\"font-size:14px\">{} is better.</p>\n",
                           content.larger_is_better ? "Larger" : "Smaller");
}

std::string facts_html(const ReportContent& content) {
  std::string out = "<h2>The run</h2>\n<table class=\"facts\">\n";
  for (const auto& [label, value] : content.facts) out += "<tr>" + cell(label) + cell(value) + "</tr>\n";
  return out + "</table>\n";
}

std::string confusion_cell(const Confusion::Count& c, std::int64_t total_of_wanted) {
  const double share = total_of_wanted > 0 ? static_cast<double>(c.count) / static_cast<double>(total_of_wanted) : 0;
  return fmt::format("<td style=\"background:rgba({},{:.2f})\">{}</td>",
                     c.wanted == c.predicted ? "37,99,235" : "234,88,12", 0.55 * share, c.count);
}

std::string largest_confusions_html(const Confusion& confusion) {
  std::vector<std::int64_t> totals(confusion.names.size());
  for (const Confusion::Count& c : confusion.counts) totals[static_cast<std::size_t>(c.wanted)] += c.count;
  std::string out = "<tr>" + cell("wanted", "th") + cell("predicted", "th") + cell("times", "th") + "</tr>\n";
  for (const Confusion::Count& c : confusion.largest(Confusion::most_in_a_table)) {
    const auto wanted = static_cast<std::size_t>(c.wanted), predicted = static_cast<std::size_t>(c.predicted);
    out += "<tr>" + cell(confusion.names[wanted], "th") + cell(confusion.names[predicted], "th") +
           confusion_cell(c, totals[wanted]) + "</tr>\n";
  }
  return out;
}

std::string confusion_table_html(const Confusion& confusion) {
  std::string out = "<tr><th></th>";
  for (const std::string& name : confusion.names) out += cell(name, "th");
  out += "</tr>\n";
  const std::vector<std::vector<std::int64_t>> table = confusion.table();
  for (std::int64_t w = 0; w < confusion.num_classes; ++w) {
    const std::vector<std::int64_t>& row = table[static_cast<std::size_t>(w)];
    const std::int64_t total = std::accumulate(row.begin(), row.end(), std::int64_t{0});
    out += "<tr>" + cell(confusion.names[static_cast<std::size_t>(w)], "th");
    for (std::int64_t p = 0; p < confusion.num_classes; ++p)
      out += confusion_cell({w, p, row[static_cast<std::size_t>(p)]}, total);
    out += "</tr>\n";
  }
  return out;
}

std::string confusion_html(const Confusion& confusion) {
  const bool whole = confusion.fits_a_table();
  return fmt::format(
             "<h2>Confusion</h2>\n<p>Accuracy {:.4f}. {}</p>\n<div class=\"scroll\"><table class=\"confusion\">\n",
             confusion.accuracy(),
             whole ? "Rows: the class that was wanted; columns: the one that was predicted."
                   : fmt::format("The largest confusions of {} classes; metrics.json has them all.",
                                 grouped(confusion.num_classes))) +
         (whole ? confusion_table_html(confusion) : largest_confusions_html(confusion)) + "</table></div>\n";
}

std::string history_html(const ReportContent& content) {
  std::string out =
      fmt::format("<details><summary>History, {} epochs</summary>\n<table>\n<tr>{}{}", content.history.size(),
                  cell("epoch", "th", "number"), cell("training loss", "th", "number"));
  for (const ShownMetric& metric : content.metrics) out += cell("validation " + metric.name, "th", "number");
  out += cell("seconds", "th", "number") + "</tr>\n";
  for (const train::EpochRecord& r : content.history) {
    out += "<tr>" + cell(std::to_string(r.epoch), "td", "number") +
           cell(fmt::format("{:.6f}", r.train_loss), "td", "number");
    for (const double value : shown_values(content.metrics, r))
      out += cell(fmt::format("{:.6f}", value), "td", "number");
    out += cell(fmt::format("{:.3f}", r.seconds), "td", "number") + "</tr>\n";
  }
  return out + "</table></details>\n";
}

std::string details(const std::string& name, const std::string& text, bool open = false) {
  return fmt::format("<details{}><summary>{}</summary>\n<pre>{}</pre></details>\n", open ? " open" : "",
                     escape_xml(name), escape_xml(text));
}

}  // namespace

Chart loss_chart(const std::vector<train::EpochRecord>& history) {
  ChartSeries loss{.name = "training loss"};
  bool positive = true;
  for (const train::EpochRecord& r : history) {
    loss.xs.push_back(static_cast<double>(r.epoch));
    loss.ys.push_back(r.train_loss);
    positive = positive && r.train_loss > 0;
  }
  return {.title = "Training loss", .x_label = "epoch", .y_label = "loss", .series = {loss}, .log_y = positive};
}

std::vector<Chart> validation_charts(const std::vector<train::EpochRecord>& history,
                                     std::span<const ShownMetric> metrics, std::int64_t best_epoch) {
  std::vector<ChartSeries> of_metrics;
  for (const ShownMetric& metric : metrics) of_metrics.push_back({.name = "validation " + metric.name});
  for (const train::EpochRecord& r : history) {
    const std::vector<double> values = shown_values(metrics, r);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) continue;
      of_metrics[i].xs.push_back(static_cast<double>(r.epoch));
      of_metrics[i].ys.push_back(values[i]);
    }
  }
  std::vector<Chart> charts;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const ChartSeries& series = of_metrics[i];
    if (series.xs.empty()) continue;
    Chart chart{.title = "Validation", .x_label = "epoch", .y_label = metrics[i].name, .series = {series}};
    if (best_epoch > 0) {
      chart.mark_x = static_cast<double>(best_epoch);
      chart.mark = "best, epoch " + std::to_string(best_epoch);
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

std::string print_html(const ReportContent& content) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}: Hotloop run</title>\n<style>\n{1}{2}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n"
      "<p class=\"headline\">{3}</p>\n",
      escape_xml(content.title), page_style, chart_style(), escape_xml(content.headline));
  if (!content.status.empty()) out += fmt::format("<p class=\"status\">{}</p>\n", escape_xml(content.status));
  if (!content.results.empty()) out += results_html(content);
  if (!content.further.empty()) out += "<p>" + escape_xml(content.further) + "</p>\n";
  if (!content.outputs.empty()) out += "<pre>" + escape_xml(content.outputs) + "</pre>\n";
  if (content.confusion) out += confusion_html(*content.confusion);
  out += "<h2>Curves</h2>\n";
  for (const Chart& chart : content.charts) out += print_inline_svg(chart);
  out += facts_html(content);
  out += "<h2>What ran where, and how long</h2>\n";
  if (!content.kernels.empty()) out += "<pre>" + escape_xml(content.kernels) + "</pre>\n";
  out += "<pre>" + escape_xml(content.times) + "</pre>\n";
  out += details("The training step, as compiled", content.step);
  out += "<h2>Configuration and history</h2>\n";
  out += details("config.toml", content.config) + history_html(content);
  return out +
         "<footer>Written by hotloop. Predict with <code>hotloop predict RUN data.csv -o out.csv</code>, go on with "
         "<code>hotloop train --resume RUN</code>.</footer>\n</main>\n</body>\n</html>\n";
}

}  // namespace hotloop::cli
