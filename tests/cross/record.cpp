// Renders programs as plain C for the portable target, runs them here, and writes down source, inputs and outputs, so that another
// processor can be compared with this one to the bit.
//
// usage: cross_record FOLDER      writes <case>.c and <case>.bin
//   .bin: i64 rows, shared bytes, scratch bytes, number of inputs, number of outputs; then for each input i64 bytes and the
//   bytes; then for each output the same
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "hotloop/hotloop.h"
#include "user_cells.h"

using namespace hotloop;

namespace {

void put(std::ofstream& out, std::int64_t value) { out.write(reinterpret_cast<const char*>(&value), sizeof value); }

void put(std::ofstream& out, const Array& array) {
  put(out, static_cast<std::int64_t>(array.bytes()));
  out.write(static_cast<const char*>(array.raw()), static_cast<std::streamsize>(array.bytes()));
}

void record(const std::filesystem::path& folder, const std::string& name, const train::Step& step) {
  CompileOptions options{.backend = "c", .target = "portable", .batch_axes = step.batch_axes, .keep_source = true};
  const Executable program = compile(step.graph(), options);

  std::mt19937_64 rng(1);
  std::normal_distribution<double> normal(0, 0.5);
  std::vector<Array> inputs;
  for (const ValueType& type : step.input_types) {
    inputs.push_back(Array::zeros(type.dtype, type.shape));
    if (is_float(type.dtype))
      for (std::int64_t i = 0; i < inputs.back().size(); ++i) inputs.back().set(i, normal(rng));
  }
  // A second moment of the optimiser cannot be negative.
  for (Array& input : inputs)
    if (is_float(input.dtype()) && &input != &inputs.back())
      for (std::int64_t i = 0; i < input.size(); ++i) input.set(i, input.at(i) < 0 ? -0.5 * input.at(i) : input.at(i));
  KernelHistory::start();
  const std::vector<Array> outputs = program(inputs);
  const KernelRecord launch = KernelHistory::stop().back();

  std::ofstream(folder / (name + ".c")) << program.source();
  std::ofstream bin(folder / (name + ".bin"), std::ios::binary);
  for (const std::int64_t value : {launch.rows, launch.shared_bytes, launch.scratch_bytes,
                                   static_cast<std::int64_t>(inputs.size()), static_cast<std::int64_t>(outputs.size())})
    put(bin, value);
  for (const Array& a : inputs) put(bin, a);
  for (const Array& a : outputs) put(bin, a);
  std::printf("%s: %zu inputs, %zu outputs\n", name.c_str(), inputs.size(), outputs.size());
}

}  // namespace

int main(int, char** argv) {
  const std::filesystem::path folder(argv[1]);
  constexpr std::int64_t batch = 11, time = 7, features = 5, hidden = 12;
  const std::vector<std::pair<std::string, nn::Layer>> models = {
      {"lstm", nn::Sequential(nn::LSTM(features, hidden, 2), nn::Last(), nn::Linear(hidden, 1))},
      {"gru", nn::Sequential(nn::GRU(features, hidden), nn::LayerNorm(hidden), nn::Last(), nn::Linear(hidden, 1))},
      {"mlp", nn::Sequential(nn::Last(), nn::Linear(features, hidden), nn::Activation("tanh"), nn::Linear(hidden, 1))},
      {"gelu", nn::Sequential(nn::Last(), nn::Linear(features, hidden), nn::Activation("gelu"), nn::Linear(hidden, 1))},
      {"functions",
       nn::Sequential(nn::Recurrent(testing::FunctionsCell(features, hidden)), nn::Last(), nn::Linear(hidden, 1))}};
  for (const auto& [name, model] : models)
    for (const DType dtype : {DType::F32, DType::F64}) {
      const Tree<Array> params = model.init(0, dtype);
      const optim::Adam adam(1e-3);
      const ValueType x{dtype, {batch, time, features}}, y{dtype, {batch, 1}};
      const std::string full = name + "_" + std::string(name_of(dtype));
      record(folder, full + "_train_step",
             train::train_step(model, losses::MSE(), adam, params, adam.init(params), x, y));
      record(folder, full + "_predict", train::predict_step(model, params, x));
    }
}
