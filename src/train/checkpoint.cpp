#include "hotloop/checkpoint.h"

#include <algorithm>
#include <charconv>

#include "core/nearest.h"
#include "hotloop/error.h"
#include "hotloop/io.h"
#include "io/crc32c.h"
#include "io/files.h"
#include "io/json.h"
#include "nn/check_params.h"

namespace hotloop::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int format = 1;
constexpr std::string_view folder_prefix = "step-";
constexpr const char* json_name = "training.json";
const std::string where = "checkpoint";

void append(io::Checkpoint& to, const Tree<Array>& tree) {
  tree.for_each([&](const std::string& name, const Array& leaf) { to.tensors.emplace_back(name, leaf); });
}

std::string print_trees(const Tree<Array>& first, const Tree<Array>& second = {}) {
  io::Checkpoint file;
  file.metadata = {{"format", "pt"}};
  append(file, first);
  append(file, second);
  return io::print_safetensors(file);
}

// JSON has no NaN: a number that is not there yet is left out.
void set_number(Json& json, const char* key, double value) {
  if (value == value) json[key] = value;
}
double number_or_nan(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}
double number_or_nan(const Json& json, const char* key) {
  return json.contains(key) ? json.at(key).get<double>() : std::numeric_limits<double>::quiet_NaN();
}

Json to_json(const TrainingState& s) {
  Json json = {{"format", format}};
  if (!s.run.empty()) json["run"] = s.run;
  json.update({{"epoch", s.epoch},
               {"step", s.step},
               {"num_steps", s.num_steps},
               {"epoch_loss", s.epoch_loss},
               {"epoch_weight", s.epoch_weight},
               {"epoch_seconds", s.epoch_seconds},
               {"seconds", s.seconds},
               {"best_epoch", s.best_epoch}});
  set_number(json, "best_validation", s.best_validation);
  set_number(json, "stopping_reference", s.stopping_reference);
  json["epochs_without_improvement"] = s.epochs_without_improvement;
  json["seed"] = s.seed;
  json["generator"] = nn::name_of(s.generator);
  json["batch_size"] = s.batch_size;
  json["num_samples"] = s.num_samples;
  json["shuffle"] = s.shuffle;
  json["num_params"] = s.params.num_leaves();  // the rest of model.safetensors are buffers
  json["history"] = Json::array();
  for (const EpochRecord& r : s.history) {
    Json& record =
        json["history"].emplace_back(Json{{"epoch", r.epoch}, {"train_loss", r.train_loss}, {"seconds", r.seconds}});
    set_number(record, "validation", r.validation);
    for (const auto& [name, value] : r.metrics) record["metrics"][name] = value;  // null where it is not finite
  }
  return json;
}

TrainingState from_json(const Json& json) {
  TrainingState s;
  s.run = json.value("run", "");  // older checkpoints have none
  json.at("epoch").get_to(s.epoch);
  json.at("step").get_to(s.step);
  json.at("num_steps").get_to(s.num_steps);
  json.at("epoch_loss").get_to(s.epoch_loss);
  json.at("epoch_weight").get_to(s.epoch_weight);
  json.at("epoch_seconds").get_to(s.epoch_seconds);
  json.at("seconds").get_to(s.seconds);
  json.at("best_epoch").get_to(s.best_epoch);
  s.best_validation = number_or_nan(json, "best_validation");
  s.stopping_reference = number_or_nan(json, "stopping_reference");
  json.at("epochs_without_improvement").get_to(s.epochs_without_improvement);
  json.at("seed").get_to(s.seed);
  s.generator = nn::generator_from_name(json.value("generator", "philox"));  // older checkpoints have none
  json.at("batch_size").get_to(s.batch_size);
  json.at("num_samples").get_to(s.num_samples);
  json.at("shuffle").get_to(s.shuffle);
  for (const Json& r : json.at("history")) {
    s.history.push_back({.epoch = r.at("epoch").get<std::int64_t>(),
                         .train_loss = r.at("train_loss").get<double>(),
                         .validation = number_or_nan(r, "validation"),
                         .seconds = r.at("seconds").get<double>()});
    if (!r.contains("metrics")) continue;  // none without a validation, nor in older checkpoints
    for (const auto& [name, value] : r.at("metrics").items())
      s.history.back().metrics.emplace_back(name, number_or_nan(value));
  }
  return s;
}

// Number of steps of a folder's name, or -1.
std::int64_t steps_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(folder_prefix)) return -1;
  std::int64_t steps = -1;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + folder_prefix.size(), end, steps);
  return error == std::errc() && stopped == end ? steps : -1;
}

// Newest first.
std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (steps_of(entry.path()) >= 0) found.push_back(entry.path());
  std::ranges::sort(found, std::greater(), steps_of);
  return found;
}

[[noreturn]] void refuse_other_run(const fs::path& path) {
  throw UserError(where, "the folder must hold checkpoints of one run alone", path.string() + ", which is of another",
                  "another folder, or delete that checkpoint");
}

// Reads the files of one checkpoint, each checked against what training.json says of it.
class Reader {
 public:
  explicit Reader(fs::path path) : path_(std::move(path)) {}
  explicit Reader(const io::NamedBytes& files) : files_(&files) {}

  // Of which run it is, without its tensors.
  std::string run() const { return parse(bytes_of(json_name)).value("run", ""); }

  TrainingState read() {
    json_ = parse(bytes_of(json_name));
    TrainingState state;
    std::size_t num_params = 0;
    try {
      if (json_.at("format").get<int>() != format)
        fail("have format " + std::to_string(format), json_.at("format").dump(), "the version that wrote it");
      state = from_json(json_);
      num_params = json_.at("num_params").get<std::size_t>();
    } catch (const Json::exception& e) {
      fail("be complete", e.what(), remedy());
    }
    if (state.epoch < 1 || state.step < 0 || state.num_steps < state.step || state.batch_size < 1)
      fail("hold a position that can be", "epoch " + std::to_string(state.epoch), remedy());
    std::tie(state.params, state.buffers) = split(tensors("model.safetensors"), num_params);
    if (state.best_epoch > 0)
      std::tie(state.best_params, state.best_buffers) = split(tensors("best.safetensors"), num_params);
    state.optimizer_state = Tree<Array>::from_names(tensors("optimizer.safetensors"));
    return state;
  }

 private:
  using Tensors = std::vector<std::pair<std::string, Array>>;

  [[noreturn]] void fail(const std::string& requirement, const std::string& received, const std::string& remedy) const {
    throw UserError(where, (path_ / json_name).string() + " must " + requirement, received, remedy);
  }
  std::string remedy() const {
    return path_.empty() ? "" : "delete " + path_.string() + " to go on from the one before";
  }

  std::string bytes_of(const std::string& name) const {
    if (files_ == nullptr) return io::read_file(path_ / name, where);
    const auto file = std::ranges::find(*files_, name, &io::NamedBytes::value_type::first);
    if (file == files_->end()) throw UserError(where, name + " must be there", "a checkpoint without it");
    return file->second;
  }

  Json parse(const std::string& text) const {
    Json json;
    try {
      json = io::parse_json<Json>(text);
      const std::uint32_t checksum = json.at("checksum").get<std::uint32_t>();
      json.erase("checksum");
      if (io::crc32c(json.dump(2)) == checksum) return json;
    } catch (const Json::exception& e) {
      fail("be whole", e.what(), remedy());
    }
    fail("be what was written", "another checksum", remedy());
  }

  Tensors tensors(const std::string& name) const {
    const std::string bytes = bytes_of(name);
    std::size_t size = 0;
    std::uint32_t checksum = 0;
    try {
      size = json_.at("files").at(name).at("bytes").get<std::size_t>();
      checksum = json_.at("files").at(name).at("crc32c").get<std::uint32_t>();
    } catch (const Json::exception& e) {
      fail("list " + name, e.what(), remedy());
    }
    if (bytes.size() != size || io::crc32c(bytes) != checksum)
      throw UserError(where, (path_ / name).string() + " must be what was written",
                      bytes.size() != size ? std::to_string(bytes.size()) + " bytes instead of " + std::to_string(size)
                                           : "another checksum",
                      remedy());
    return io::parse_safetensors(bytes, (path_ / name).string()).tensors;
  }

  std::pair<Tree<Array>, Tree<Array>> split(const Tensors& all, std::size_t num_params) const {
    if (num_params > all.size()) fail("know its tensors", std::to_string(num_params) + " parameters", remedy());
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(num_params);
    return {Tree<Array>::from_names(Tensors(all.begin(), middle)), Tree<Array>::from_names(Tensors(middle, all.end()))};
  }

  fs::path path_;  // empty: of files_
  const io::NamedBytes* files_ = nullptr;
  Json json_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> print_checkpoint(const TrainingState& state) {
  io::NamedBytes files = {{"model.safetensors", print_trees(state.params, state.buffers)}};
  if (state.best_epoch > 0) files.emplace_back("best.safetensors", print_trees(state.best_params, state.best_buffers));
  files.emplace_back("optimizer.safetensors", print_trees(state.optimizer_state));
  Json json = to_json(state);
  for (const auto& [name, bytes] : files)
    json["files"][name] = {{"bytes", bytes.size()}, {"crc32c", io::crc32c(bytes)}};
  json["checksum"] = io::crc32c(json.dump(2));
  files.emplace_back(json_name, json.dump(2) + "\n");
  return files;
}

TrainingState parse_checkpoint(const std::vector<std::pair<std::string, std::string>>& files) {
  return Reader(files).read();
}

fs::path save_checkpoint(const fs::path& folder, const TrainingState& state) {
  std::string digits = std::to_string(state.num_steps);
  digits.insert(0, digits.size() < 8 ? 8 - digits.size() : 0, '0');
  const fs::path path = folder / (std::string(folder_prefix) + digits);
  const io::NamedBytes files = print_checkpoint(state);
  if (!fs::exists(path)) {
    io::write_folder_atomic(path, files, where);
    return path;
  }
  // What is there may be this state: its training.json, the last file, has the checksums of the others. Written by an older version, it may say the same
  // otherwise.
  if (io::read_file(path / json_name, where) == files.back().second) return path;
  const TrainingState there = load_checkpoint(path);
  if (print_checkpoint(there) == files) return path;
  if (there.run.empty() || there.run != state.run) refuse_other_run(path);
  io::replace_folder_atomic(path, files, where);
  return path;
}

TrainingState load_checkpoint(const fs::path& path) {
  if (path.empty())
    throw UserError(where, "there must be a checkpoint to load",
                    "an empty path, which latest_checkpoint() gives for a folder without any",
                    "a folder that a training wrote checkpoints to");
  return Reader(path).read();
}

fs::path latest_checkpoint(const fs::path& folder) {
  const std::vector<fs::path> all = checkpoints_in(folder);
  return all.empty() ? fs::path() : all.front();
}

void check_checkpoint_folder(const fs::path& folder, const TrainingState* resume) {
  const fs::path latest = latest_checkpoint(folder);
  if (latest.empty()) return;
  if (resume == nullptr)
    throw UserError(where,
                    "the folder of a fit that does not resume must hold no checkpoints, or those of two runs mix",
                    latest.string(), "resume from that folder, or name another one, or delete it");
  if (steps_of(latest) > resume->num_steps)
    throw UserError(where,
                    "the folder must hold no checkpoint later than the one that is resumed, after step " +
                        std::to_string(resume->num_steps),
                    latest.string(), "resume from the latest, or name another folder, or delete what is later");
  if (Reader(latest).run() != resume->run) refuse_other_run(latest);
}

void prune_checkpoints(const fs::path& folder, std::int64_t keep) {
  const std::vector<fs::path> all = checkpoints_in(folder);
  for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i) io::remove_folder_atomic(all[i]);
}

void save_model(const fs::path& path, const Tree<Array>& params, const Tree<Array>& buffers) {
  nn::check_defined("save_model", "params", params);
  nn::check_defined("save_model", "buffers", buffers);
  io::write_file_atomic(path, print_trees(params, buffers), where);
}

Tree<Array> match_tree(const Tree<Array>& stored, const Tree<Array>& like, const std::string& source) {
  const std::vector<std::string> names = like.names(), stored_names = stored.names();
  std::vector<Array> leaves;
  like.for_each([&](const std::string& name, const Array& leaf) {
    if (std::ranges::find(stored_names, name) == stored_names.end())
      throw UserError(where, "tensor '" + name + "' must be in " + source, "none of that name",
                      stored.is_leaf() || stored_names.empty() ? "the parameters of this model, as its init gives them"
                                                               : nearest_hint(name, stored_names));
    const Array& own = stored[name];
    if (own.type() != leaf.type())
      throw UserError(where, "tensor '" + name + "' of " + source + " must be " + leaf.type().str(), own.type().str(),
                      "the configuration and the parameters of one run");
    leaves.push_back(own);
  });
  for (const std::string& name : stored_names)
    if (std::ranges::find(names, name) == names.end())
      throw UserError(where, source + " must hold the tensors of this model alone", "'" + name + "'",
                      names.empty() ? "a model that has it" : nearest_hint(name, names));
  return like.unflatten(leaves);
}

ModelArrays load_model(const fs::path& path, const Tree<Array>& params_like, const Tree<Array>& buffers_like) {
  const io::Checkpoint file = io::load_safetensors(path);
  // One tree of both: their names differ, and what is left over belongs to neither.
  std::vector<std::pair<std::string, Array>> wanted;
  for (const Tree<Array>* tree : {&params_like, &buffers_like})
    tree->for_each([&](const std::string& name, const Array& leaf) { wanted.emplace_back(name, leaf); });
  const Tree<Array> like = Tree<Array>::from_names(wanted);
  if (buffers_like.num_leaves() == 0)
    for (const auto& [name, tensor] : file.tensors) {
      const bool is_buffer =
          name.ends_with("running_mean") || name.ends_with("running_var") || name.ends_with("num_batches_tracked");
      const bool is_wanted = std::ranges::any_of(wanted, [&](const auto& own) { return own.first == name; });
      if (is_buffer && !is_wanted)
        throw UserError(where, path.string() + " must hold the tensors of this model alone", "'" + name + "', a buffer",
                        "buffers_like = model.init_buffers()");
    }
  const Tree<Array> all = match_tree(Tree<Array>::from_names(file.tensors), like, path.string());
  const auto pick = [&](const Tree<Array>& tree) {
    std::vector<Array> leaves;
    tree.for_each([&](const std::string& name, const Array&) { leaves.push_back(all[name]); });
    return tree.unflatten(leaves);
  };
  return {pick(params_like), pick(buffers_like)};
}

}  // namespace hotloop::train
