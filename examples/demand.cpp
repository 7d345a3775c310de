// The main job through the C++ interface: electricity demand a day ahead. usage: demand [epochs] [table.csv]
#include <cstdio>
#include <cstdlib>

#include "hotloop/hotloop.h"

using namespace hotloop;

int main(int argc, char** argv) try {
  const std::int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 40;
  data::Table table = data::read_csv(argc > 2 ? argv[2] : "data/elecdemand.csv", {"Demand", "WorkDay", "Temperature"});
  data::WindowOptions window{
      .inputs = {"Temperature", "WorkDay", "yesterday", "last_week"}, .target = "Demand", .length = 48};
  table.add("yesterday", data::lag(table["Demand"], 48));
  table.add("last_week", data::lag(table["Demand"], 336));
  const auto add_periodic = [&](const char* name, const data::Periodic& spec) {
    for (auto& [column, values] : data::periodic(name, table.num_rows(), spec)) {
      window.inputs.push_back(column);
      table.add(column, std::move(values));
    }
  };
  add_periodic("day", {.period = 48, .harmonics = 2});
  add_periodic("week", {.period = 7, .step = 48, .phase = 2});  // the table begins on a Wednesday

  const data::WindowedTable windows(table, window);
  const nn::Sequential model(nn::LSTM(10, 32), nn::Last(), nn::Linear(32, 1));
  const train::FitResult run = fit(model, windows.train(), windows.validation(),
                                   {.optimizer = optim::Adam(1e-3), .batch_size = 256, .epochs = epochs});
  const Array predicted = train::predict(model, run.params, windows.test());
  const auto& [mean, std] = windows.target_scale();
  std::printf("test MAE %.4f, best validation in epoch %lld\n",
              train::evaluate_metric(train::Metric::mae(), predicted, windows.test(), std, mean),
              static_cast<long long>(run.best_epoch));
  return run.status == train::FitResult::Status::Finished ? 0 : 1;
} catch (const UserError& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
