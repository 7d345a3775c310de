// What is written of a training while it goes on: history.csv, TensorBoard events, and the best parameters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/run_folder.h"
#include "cli/shown_metrics.h"
#include "hotloop/fit.h"
#include "io/event_file.h"

namespace hotloop::cli {

class TrainingLog {
 public:
  // `resumed`: the state that the training goes on from, or null.
  TrainingLog(const RunFolder& folder, std::vector<ShownMetric> metrics, const train::TrainingState* resumed);
  void update(const train::Progress& progress);
  // history.csv once more, whole and on the disk.
  void finish(const std::vector<train::EpochRecord>& history);

 private:
  std::string header() const;
  std::string line(const train::EpochRecord& record) const;

  RunFolder folder_;
  std::vector<ShownMetric> metrics_;
  io::EventFile events_;
  std::int64_t steps_per_epoch_ = 0, last_samples_ = 0;
  double last_training_s_ = 0;
};

}  // namespace hotloop::cli
