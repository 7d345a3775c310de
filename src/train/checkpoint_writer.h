// Writes checkpoints beside the training.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "hotloop/checkpoint.h"

namespace hotloop::train {

// A thread that writes the newest state it was given, one at a time, and deletes old ones.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(const CheckpointOptions& options);  // an empty folder: nothing is written
  // What was given last is written, errors are lost: call finish() first.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // The state must not change any more. One that was not begun to be written is replaced. Throws the error of an earlier one.
  void write(TrainingState state);
  // Waits until the last state is on the disk. Throws its error.
  void finish();

 private:
  void run();
  void rethrow();

  CheckpointOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<TrainingState> pending_;
  bool busy_ = false, end_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace hotloop::train
