#include "cli/progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/report.h"

namespace hotloop::cli {
namespace {

std::size_t terminal_columns(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// "41,200 samples/s", "1.3 samples/s": of training alone.
std::string rate_text(const train::Progress& progress) {
  const double per_s = progress.training_s > 0 ? static_cast<double>(progress.samples_here) / progress.training_s : 0;
  return (per_s < 100 ? fmt::format("{:.1f}", per_s) : grouped(std::llround(per_s))) + " samples/s";
}

std::string epoch_text(const train::Progress& progress) {
  return fmt::format("epoch {:>{}}/{}", progress.epoch, std::to_string(progress.num_epochs).size(),
                     progress.num_epochs);
}

// Behind `head`, those for which 80 columns have no room in further lines.
std::string in_lines(const std::string& head, const std::vector<std::string>& pieces) {
  std::string out = head;
  std::size_t column = head.size();
  for (const std::string& piece : pieces) {
    if (column + 2 + piece.size() > 80) {
      out.resize(out.find_last_not_of(' ') + 1);
      out += "\n" + std::string(head.size(), ' ');
      column = head.size();
    }
    out += "  " + piece;
    column += 2 + piece.size();
  }
  return out;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<long>(std::lround(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

ProgressBar::ProgressBar(std::FILE* out, std::vector<ShownMetric> metrics)
    : out_(out), on_terminal_(isatty(fileno(out)) != 0), metrics_(std::move(metrics)) {}

void ProgressBar::update(const train::Progress& progress) {
  if (progress.epoch_done) {
    const train::EpochRecord& record = *progress.epoch_record;
    std::vector<std::string> judged;
    const std::vector<double> values = shown_values(metrics_, record);
    for (std::size_t i = 0; i < values.size(); ++i) judged.push_back(metrics_[i].name + " " + score_text(values[i]));
    last_epoch_ = fmt::format("{}", fmt::join(judged, ", "));
    if (!on_terminal_) {
      std::vector<std::string> pieces = {"loss " + score_text(record.train_loss, 5),
                                         "validation " + judged[0] + (progress.best ? " *" : "  ")};
      pieces.insert(pieces.end(), judged.begin() + 1, judged.end());
      pieces.push_back(fmt::format("{:.2f} s", record.seconds));
      pieces.push_back(rate_text(progress));
      fmt::print(out_, "{}\n", in_lines(epoch_text(progress), pieces));
      std::fflush(out_);
    }
  }
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool last = progress.epoch_done && progress.epoch == progress.num_epochs;
  if (!last && now - last_drawn_ < std::chrono::milliseconds(50)) return;
  last_drawn_ = now;
  draw(progress);
  if (last) end_line();
  std::fflush(out_);
}

void ProgressBar::end_line() {
  if (drawn_) fmt::print(out_, "\n");
  drawn_ = false;
}

void ProgressBar::draw(const train::Progress& progress) {
  const double all = static_cast<double>(progress.num_epochs) * static_cast<double>(progress.num_steps);
  const double done = static_cast<double>(progress.epoch - 1) * static_cast<double>(progress.num_steps) +
                      static_cast<double>(progress.step);
  const double s_per_step = progress.steps_here > 0 ? progress.elapsed_s / static_cast<double>(progress.steps_here) : 0;
  const std::string head = epoch_text(progress) + " ";
  std::string tail = " " + rate_text(progress);
  tail +=
      done < all ? ", " + duration_text((all - done) * s_per_step) + " left" : ", " + duration_text(progress.elapsed_s);
  if (!last_epoch_.empty()) tail += ", " + last_epoch_;
  const std::size_t columns = terminal_columns(out_);
  const std::size_t used = head.size() + tail.size() + 3;
  const std::size_t width = columns > used + 5 ? std::min<std::size_t>(columns - used, 30) : 0;
  const auto filled = static_cast<std::size_t>(done / all * static_cast<double>(width));
  std::string line = head;
  if (width > 0) line += "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
  line += tail;
  if (line.size() >= columns) line.resize(columns - 1);
  fmt::print(out_, "\r{}\x1b[K", line);
  drawn_ = true;
}

}  // namespace hotloop::cli
