#include "cli/run_folder.h"

#include <fmt/format.h>
#include <algorithm>

#include "core/nearest.h"
#include "hotloop/error.h"
#include "hotloop/io.h"
#include "io/files.h"

namespace hotloop::cli {

void RunFolder::create() const {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error)
    throw UserError("run", "the folder must be one that can be made", path_.string() + " (" + error.message() + ")",
                    "another --out");
}

void RunFolder::write_config(const std::string& text) const { io::write_file_atomic(config(), text, "run"); }

void RunFolder::write_params(const Tree<Array>& params) const {
  io::Checkpoint checkpoint;
  checkpoint.metadata = {{"format", "pt"}};
  params.for_each([&](const std::string& name, const Array& leaf) { checkpoint.tensors.emplace_back(name, leaf); });
  io::save_safetensors(model(), checkpoint);
}

void RunFolder::write_history(const std::vector<train::EpochRecord>& history, const std::string& metric,
                              double scale) const {
  std::string text = "epoch,train_loss,validation_" + metric + ",seconds\n";
  for (const train::EpochRecord& r : history)
    text += fmt::format("{},{},{},{:.6f}\n", r.epoch, r.train_loss, r.validation * scale, r.seconds);
  io::write_file_atomic(path_ / "history.csv", text, "run");
}

void RunFolder::write_metrics(const nlohmann::ordered_json& metrics_json) const {
  io::write_file_atomic(metrics(), metrics_json.dump(2) + "\n", "run");
}

Tree<Array> RunFolder::read_params(const Tree<Array>& like) const {
  const io::Checkpoint checkpoint = io::load_safetensors(model());
  std::vector<Array> leaves;
  const std::vector<std::string> names = like.names();
  like.for_each([&](const std::string& name, const Array& leaf) {
    const Array& stored = checkpoint[name];
    if (stored.type() != leaf.type())
      throw UserError("checkpoint", "tensor '" + name + "' of " + model().string() + " must be " + leaf.type().str(),
                      stored.type().str(), "the configuration and the parameters of one run");
    leaves.push_back(stored);
  });
  for (const auto& [name, array] : checkpoint.tensors)
    if (std::ranges::find(names, name) == names.end())
      throw UserError("checkpoint", model().string() + " must hold the model's parameters alone", "'" + name + "'",
                      nearest_hint(name, names));
  return like.unflatten(leaves);
}

nlohmann::ordered_json RunFolder::read_metrics() const {
  const std::string text = io::read_file(metrics(), "run");
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw UserError("run", metrics().string() + " must be JSON", e.what());
  }
}

}  // namespace hotloop::cli
