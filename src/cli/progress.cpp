#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

namespace hotloop::cli {
namespace {

std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<long>(std::lround(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

ProgressBar::ProgressBar(bool on_terminal, std::string metric, double scale)
    : on_terminal_(on_terminal),
      metric_(std::move(metric)),
      scale_(scale),
      best_(std::numeric_limits<double>::infinity()) {}

void ProgressBar::update(const train::Progress& progress) {
  if (progress.epoch_done) {
    const train::EpochRecord& record = *progress.epoch_record;
    const bool better = record.validation < best_;
    if (better) best_ = record.validation;
    last_epoch_ = fmt::format("{} {:.4f}", metric_, record.validation * scale_);
    if (!on_terminal_) {
      fmt::print("epoch {:>{}}/{}  loss {:.5f}  validation {}{}  {:.2f} s\n", progress.epoch,
                 std::to_string(progress.num_epochs).size(), progress.num_epochs, record.train_loss, last_epoch_,
                 better ? " *" : "  ", record.seconds);
      std::fflush(stdout);
    }
  }
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool last = progress.epoch_done && progress.epoch == progress.num_epochs;
  if (!last && now - last_drawn_ < std::chrono::milliseconds(50)) return;
  last_drawn_ = now;
  draw(progress);
  if (last) fmt::print("\n");
  std::fflush(stdout);
}

void ProgressBar::draw(const train::Progress& progress) {
  const double done = static_cast<double>(progress.epoch - 1) +
                      static_cast<double>(progress.step) / static_cast<double>(progress.num_steps);
  const double epochs_per_s = progress.elapsed_s > 0 ? done / progress.elapsed_s : 0;
  const double left_s = epochs_per_s > 0 ? (static_cast<double>(progress.num_epochs) - done) / epochs_per_s : 0;
  const std::string head =
      fmt::format("epoch {:>{}}/{} ", progress.epoch, std::to_string(progress.num_epochs).size(), progress.num_epochs);
  std::string tail = fmt::format(" {:.2f} epochs/s, {} left", epochs_per_s, duration_text(left_s));
  if (!last_epoch_.empty()) tail += ", " + last_epoch_;
  const std::size_t columns = terminal_columns();
  const std::size_t used = head.size() + tail.size() + 3;
  const std::size_t width = columns > used + 5 ? std::min<std::size_t>(columns - used, 30) : 0;
  const auto filled =
      static_cast<std::size_t>(done / static_cast<double>(progress.num_epochs) * static_cast<double>(width));
  std::string line = head;
  if (width > 0) line += "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
  line += tail;
  if (line.size() >= columns) line.resize(columns - 1);
  fmt::print("\r{}\x1b[K", line);
}

}  // namespace hotloop::cli
