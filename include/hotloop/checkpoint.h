// Checkpoints of a training: everything that the rest of it depends on. A training that goes on from one ends in the same bits
// as one that was never stopped.
//
// A checkpoint is a folder, written beside the others and renamed into place when it is whole and on the disk:
//   checkpoints/step-00000470/
//     model.safetensors      parameters and buffers after that step, with PyTorch's names and shapes
//     best.safetensors       the same of the best epoch so far, once there is one
//     optimizer.safetensors  the optimiser's state
//     training.json          run, position, history with all metrics, counters, and the size and checksum of the other files
// Nothing is stored of random numbers: the order of the samples is a function of seed and epoch, a step's key one of seed and
// step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/array.h"
#include "hotloop/init.h"
#include "hotloop/tree.h"

namespace hotloop::train {

struct EpochRecord {
  std::int64_t epoch = 0;  // from 1
  double train_loss = 0;   // mean over the epoch's samples, each under the parameters of its step
  // The metric, under the parameters at the end of the epoch; NaN without a validation.
  double validation = std::numeric_limits<double>::quiet_NaN();
  double seconds = 0;  // steps and validation
  // All metrics by name, the one above first; empty without a validation, and of epochs that an older version recorded.
  std::vector<std::pair<std::string, double>> metrics = {};
};

// Where a training stands between two steps.
struct TrainingState {
  // Tells a run from all others: drawn where it starts, kept by what goes on from it. Empty in checkpoints of older versions.
  std::string run;

  // `step` steps of `epoch` are done, `num_steps` of the whole run. Epochs count from 1; at the end epoch is one more than the
  // last.
  std::int64_t epoch = 1, step = 0, num_steps = 0;
  double epoch_loss = 0, epoch_weight = 0;  // sums over this epoch's steps
  double epoch_seconds = 0, seconds = 0;    // spent so far: for reports, no result depends on them

  Tree<Array> params, optimizer_state, buffers;

  // The best epoch so far; 0 while there is none.
  std::int64_t best_epoch = 0;
  double best_validation = std::numeric_limits<double>::quiet_NaN();
  Tree<Array> best_params, best_buffers;

  // Of early stopping: the value to beat, and the epochs since it was set.
  double stopping_reference = std::numeric_limits<double>::quiet_NaN();
  std::int64_t epochs_without_improvement = 0;

  std::vector<EpochRecord> history;

  // What the position counts in: a training with other values cannot go on from here.
  std::uint64_t seed = 0;
  nn::Generator generator = nn::Generator::Philox;
  std::int64_t batch_size = 0, num_samples = 0;
  bool shuffle = true;
};

// When checkpoints are written, and how many stay. They are written by a thread of their own; when one is due before the last
// is on the disk, training does not wait: the newest state is written next. The last state of a fit is always written.
struct CheckpointOptions {
  std::filesystem::path folder = {};  // where the folders step-* go; empty: none are written
  std::int64_t every_epochs = 1;      // 0: not at epochs' ends
  std::int64_t every_steps = 0;       // 0: not within epochs
  std::int64_t keep = 2;              // the newest ones, > 0; the best epoch is in each of them
  // Told of each one that is on the disk, by the thread that wrote it, while training goes on in another. What it throws ends the fit.
  std::function<void(const TrainingState&)> on_written = {};
};

// Writes folder/step-<num_steps>, unless this state is there already; another one of the same run is replaced, in one step. UserError for
// one of another run, and if it cannot be written (a full disk, say): nothing is then left of it. Returns its path.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, const TrainingState& state);
// Reads one. The trees have the structure that the files tell, "a.b" being child b of child a: match_tree() gives them the
// model's. UserError naming the file for what is missing, damaged or does not belong together.
TrainingState load_checkpoint(const std::filesystem::path& path);
// The same without a disk: the bytes of those files by their names, and the state they hold, with the same errors.
std::vector<std::pair<std::string, std::string>> print_checkpoint(const TrainingState& state);
TrainingState parse_checkpoint(const std::vector<std::pair<std::string, std::string>>& files);
// The newest checkpoint in a folder; empty if there is none.
std::filesystem::path latest_checkpoint(const std::filesystem::path& folder);
// Deletes all but the newest `keep`.
void prune_checkpoints(const std::filesystem::path& folder, std::int64_t keep);
// UserError if a training that goes on from `resume` (null: that starts) would mix its checkpoints with others there: fit() asks.
void check_checkpoint_folder(const std::filesystem::path& folder, const TrainingState* resume);

// Parameters and buffers in one file that PyTorch's load_state_dict(strict=True) takes.
void save_model(const std::filesystem::path& path, const Tree<Array>& params, const Tree<Array>& buffers = {});
// What save_model() wrote, in the structure of these trees, whose values do not matter. UserError naming the tensors that are
// missing, left over or of another type.
struct ModelArrays {
  Tree<Array> params, buffers;
};
ModelArrays load_model(const std::filesystem::path& path, const Tree<Array>& params_like,
                       const Tree<Array>& buffers_like = {});

// The leaves of `stored` in the structure of `like`. UserError as load_model(); `source` stands for the file in messages.
Tree<Array> match_tree(const Tree<Array>& stored, const Tree<Array>& like, const std::string& source);

}  // namespace hotloop::train
