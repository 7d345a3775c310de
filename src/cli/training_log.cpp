#include "cli/training_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hotloop/error.h"

namespace hotloop::cli {
namespace {

// One write, so that a killed program leaves whole lines behind.
void append_line(const std::filesystem::path& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int reason = errno;
  if (fd >= 0 && ::close(fd) == 0 && written) return;
  throw UserError("run", "the file must be writable", path.string() + " (" + std::strerror(reason) + ")",
                  "free some space, then go on with: hotloop train --resume " + path.parent_path().string());
}

}  // namespace

TrainingLog::TrainingLog(const RunFolder& folder, std::vector<ShownMetric> metrics, const train::TrainingState* resumed)
    : folder_(folder),
      metrics_(std::move(metrics)),
      events_(folder.path(), resumed != nullptr ? resumed->num_steps + 1 : 0) {
  // A line of an epoch that the checkpoint does not know will be written again.
  finish(resumed != nullptr ? resumed->history : std::vector<train::EpochRecord>());
}

void TrainingLog::update(const train::Progress& progress) {
  if (!progress.epoch_done) return;
  const train::EpochRecord& record = *progress.epoch_record;
  append_line(folder_.history(), line(record));
  const std::int64_t step = progress.epoch * progress.num_steps;
  events_.scalar("loss/train", record.train_loss, step);
  const std::vector<double> values = shown_values(metrics_, record);
  for (std::size_t i = 0; i < values.size(); ++i) events_.scalar(metrics_[i].name + "/validation", values[i], step);
  const double seconds = progress.training_s - last_training_s_;
  if (seconds > 0)
    events_.scalar("samples_per_second", static_cast<double>(progress.samples_here - last_samples_) / seconds, step);
  last_training_s_ = progress.training_s;
  last_samples_ = progress.samples_here;
}

void TrainingLog::finish(const std::vector<train::EpochRecord>& history) {
  std::string text = header();
  for (const train::EpochRecord& record : history) text += line(record);
  folder_.write(folder_.history(), text);
}

std::string TrainingLog::header() const {
  std::string out = "epoch,train_loss";
  for (const ShownMetric& metric : metrics_) out += ",validation_" + metric.name;
  return out + ",seconds\n";
}

std::string TrainingLog::line(const train::EpochRecord& r) const {
  return fmt::format("{},{},{},{:.6f}\n", r.epoch, r.train_loss, fmt::join(shown_values(metrics_, r), ","), r.seconds);
}

}  // namespace hotloop::cli
