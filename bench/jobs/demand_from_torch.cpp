// Trains the demand forecast from given initial parameters in a given order of the samples, so that the result can be compared
// with PyTorch's number for number; see demand_from_torch.py. usage: demand_from_torch TABLE MODEL.safetensors
//
// The file holds the parameters under the names of this model ("0.weight_ih_l0", ...) and "order", i64 [epochs, samples].
#include <algorithm>
#include <cstdio>
#include <limits>

#include "hotloop/hotloop.h"

using namespace hotloop;

namespace {

data::Samples demand_samples(const char* path) {
  data::Recipe recipe{.inputs = {"Temperature", "WorkDay", "day", "week", "yesterday", "last_week"},
                      .targets = {"Demand"},
                      .lags = {{"yesterday", "Demand", 48}, {"last_week", "Demand", 336}},
                      .length = 48};
  recipe.cycles = {{"day", data::Cycle::Of::Row, {.period = 48, .harmonics = 2}},
                   {"week", data::Cycle::Of::Row, {.period = 7, .step = 48, .phase = 2}}};
  return {*data::open_csv(path), recipe};
}

void run(const char* table, const char* file) {
  constexpr std::int64_t batch = 256;
  const data::Samples samples = demand_samples(table);
  const data::Dataset& training = samples.train();
  const auto& [mean, std] = samples.target_scale();
  const nn::Sequential model(nn::LSTM(10, 32), nn::Last(), nn::Linear(32, 1));
  const optim::Adam adam(1e-3);

  const io::Checkpoint given = io::load_safetensors(file);
  const Tree<Array> structure = model.init(0);
  std::vector<Array> values;
  for (const std::string& name : structure.names()) values.push_back(given[name]);
  const Tree<Array> initial = structure.unflatten(values);
  const std::span<const std::int64_t> order = given["order"].data<std::int64_t>();
  const std::int64_t epochs = given["order"].shape()[0];

  Array x(DType::F32, {batch, 48, 10}), y(DType::F32, {batch, 1});
  const train::Step step =
      train::train_step(model, losses::MSE(), adam, initial, adam.init(initial), x.type(), y.type());
  CompileOptions options;
  options.batch_axes = step.batch_axes;
  const Executable program = compile(step.graph(), options);
  const train::Predictor predict(model, initial, {}, training, batch);

  std::vector<Array> current = initial.flatten(), next;
  for (const Array& leaf : adam.init(initial).flatten()) current.push_back(leaf);
  for (Array& leaf : current) next.push_back((leaf = leaf.clone()).clone());
  Array loss = Array::zeros(DType::F32, {});
  double best = std::numeric_limits<double>::infinity(), test = 0;
  std::int64_t best_epoch = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::int64_t start = 0; start < training.size(); start += batch) {
      const std::int64_t rows = std::min(batch, training.size() - start);
      training.gather(
          order.subspan(static_cast<std::size_t>(epoch * training.size() + start), static_cast<std::size_t>(rows)),
          {.inputs = x.raw(), .targets = y.raw()});
      std::vector<void*> inputs, outputs;
      for (Array& a : current) inputs.push_back(a.raw());
      for (Array& a : next) outputs.push_back(a.raw());
      inputs.insert(inputs.end(), {x.raw(), y.raw()});
      outputs.push_back(loss.raw());
      program.run_raw(inputs.data(), outputs.data(), rows);
      std::swap(current, next);
    }
    const std::vector<Array> leaves(current.begin(), current.begin() + static_cast<std::ptrdiff_t>(step.num_params));
    const Tree<Array> params = structure.unflatten(leaves);
    const auto error = [&](const data::Dataset& part) {
      return train::evaluate_metric(metrics::MAE(), predict(params, {}, part), part, std, mean);
    };
    if (const double validation = error(samples.validation()); validation < best) {
      best = validation;
      best_epoch = epoch + 1;
      test = error(samples.test());
    }
  }
  std::printf("best validation epoch %lld: val %.4f test %.4f\n", static_cast<long long>(best_epoch), best, test);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw UserError("demand_from_torch", "two arguments are needed: TABLE MODEL.safetensors");
  run(argv[1], argv[2]);
} catch (const UserError& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
