#include "train/checkpoint_writer.h"

#include <utility>

#include "io/files.h"

namespace hotloop::train {

CheckpointWriter::CheckpointWriter(const CheckpointOptions& options) : options_(options) {
  if (options_.folder.empty()) return;
  io::create_folder(options_.folder, "checkpoint");
  io::remove_temporaries(options_.folder);
  thread_ = std::thread([this] { run(); });
}

CheckpointWriter::~CheckpointWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::write(TrainingState state) {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    rethrow();
    pending_ = std::move(state);
  }
  changed_.notify_all();
}

void CheckpointWriter::finish() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !pending_ && !busy_; });
  rethrow();
}

void CheckpointWriter::rethrow() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return pending_ || end_; });
    if (!pending_) return;
    const TrainingState state = *std::exchange(pending_, std::nullopt);
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      save_checkpoint(options_.folder, state);
      if (options_.on_written) options_.on_written(state);
      prune_checkpoints(options_.folder, options_.keep);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (error) error_ = error;
    changed_.notify_all();
  }
}

}  // namespace hotloop::train
