// The main job through the C++ interface: electricity demand a day ahead. usage: demand [epochs] [table.csv]
#include <cstdio>
#include <cstdlib>

#include "hotloop/hotloop.h"

using namespace hotloop;

int main(int argc, char** argv) try {
  const std::int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 40;
  data::Recipe recipe{.inputs = {"Temperature", "WorkDay", "yesterday", "last_week", "day", "week"},
                      .targets = {"Demand"},
                      .lags = {{"yesterday", "Demand", 48}, {"last_week", "Demand", 336}},
                      .length = 48};
  recipe.cycles = {{"day", data::Cycle::Of::Row, {.period = 48, .harmonics = 2}},
                   {"week", data::Cycle::Of::Row, {.period = 7, .step = 48, .phase = 2}}};  // it begins on a Wednesday
  const data::Samples samples(*data::open_csv(argc > 2 ? argv[2] : "data/elecdemand.csv"), recipe);
  const nn::Sequential model(nn::LSTM(10, 32), nn::Last(), nn::Linear(32, 1));
  const train::FitResult run = fit(model, samples.train(), samples.validation(),
                                   {.optimizer = optim::Adam(1e-3), .batch_size = 256, .epochs = epochs});
  const Array predicted = train::predict(model, run.params, samples.test());
  const auto& [mean, std] = samples.target_scale();
  std::printf("test MAE %.4f, best validation in epoch %lld\n",
              train::evaluate_metric(metrics::MAE(), predicted, samples.test(), std, mean),
              static_cast<long long>(run.best_epoch));
  return run.status == train::FitResult::Status::Finished ? 0 : 1;
} catch (const UserError& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
