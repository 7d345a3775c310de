// Training steps, inference and streaming of recurrent networks.
#include <algorithm>
#include <memory>
#include <vector>

#include "hotloop/hotloop.h"
#include "hotloop_kinds.h"
#include "user_cells.h"

namespace hotloop::bench {
namespace {

nn::Layer network(const Sizes& sizes) {
  const std::string& cell = sizes.text("cell");
  const std::int64_t i = sizes["I"], h = sizes["H"];
  nn::RecurrentOptions options;
  options.num_layers = sizes["layers"];
  options.bidirectional = sizes["directions"] == 2;
  if (cell == "lstm") return nn::LSTM(i, h, options);
  if (cell == "gru") return nn::GRU(i, h, options);
  if (cell == "rnn") return nn::RNN(i, h, options);
  if (cell == "ln_lstm") return nn::Recurrent(testing::LayerNormLstmCell(i, h));
  if (cell == "coupled") return nn::Recurrent(testing::CoupledTwoSpeedCell(i, h));
  throw Unsupported("no cell " + cell);
}

// What the task calls the parameter `name` of Sequential(network, [Last,] head): "0.weight_ih_l0", "2.bias".
std::string task_name(const std::string& name) {
  const std::size_t dot = name.find('.');
  return (name.substr(0, dot) == "0" ? "" : "head.") + name.substr(dot + 1);
}

Tree<Array> given(const nn::Sequential& model, const Arrays& inputs) {
  const Tree<Array> like = model.init(0, inputs.at("x").dtype());
  std::vector<Array> leaves;
  for (const std::string& name : like.names()) leaves.push_back(inputs.at(task_name(name)));
  return like.unflatten(leaves);
}

}  // namespace

Prepared recurrent_train(const Sizes& sizes, const Arrays& inputs, int threads) {
  const Array x = inputs.at("x"), y = inputs.at("y");
  const nn::Sequential model(network(sizes), nn::Last(), nn::Linear(inputs.at("head.weight").shape()[1], 1));
  const Tree<Array> params = given(model, inputs);
  const optim::Adam adam(1e-3);
  const Tree<Array> state = adam.init(params);
  const train::Step step = train::train_step(model, losses::MSE(), adam, params, state, x.type(), y.type());
  CompileOptions options;
  options.threads = threads;
  options.batch_axes = step.batch_axes;
  if (sizes.has("dtype") && sizes.text("dtype") == "bf16") options.dot_precision = "bf16";
  struct Now {
    Executable run;
    std::vector<Array> arguments, out;
  };
  const auto now = std::make_shared<Now>(Now{compile(step.graph(), options), step.arguments(params, state, x, y), {}});
  const auto call = [now] {
    now->out = now->run(now->arguments);
    std::copy(now->out.begin(), now->out.end() - 1, now->arguments.begin());
  };
  Array losses(DType::F64, {5});
  for (double& loss : losses.data<double>()) {
    call();
    loss = now->out.back().at(0);
  }
  Arrays results = {{"losses", losses}};
  const std::vector<std::string> names = params.names();
  for (std::size_t i = 0; i < names.size(); ++i) results[task_name(names[i])] = now->arguments[i].clone();
  return {call, results};
}

Prepared recurrent_infer(const Sizes& sizes, const Arrays& inputs, int threads) {
  const nn::Sequential model(network(sizes));
  const Tree<Array> params = given(model, inputs);
  const Array x = inputs.at("x");
  CompileOptions options;
  options.threads = threads;
  const train::Step step = train::predict_step(model, params, x.type());
  std::vector<Array> bound = params.flatten();
  bound.emplace_back();
  struct Now {
    Executable run;
    std::vector<Array> in, out;
  };
  const auto now = std::make_shared<Now>(Now{compile_bound(step.graph(), bound, options), {x}, std::vector<Array>(1)});
  const auto call = [now] { now->run.run(now->in, now->out); };
  call();
  return {call, {{"outputs", now->out[0].clone()}}, 1, "weights bound"};
}

Prepared stream_native(const Sizes& sizes, const Arrays& inputs, int threads) {
  const std::int64_t steps = sizes["T"], features = sizes["I"], h = sizes["H"];
  const nn::Sequential model(nn::LSTM(features, h), nn::Linear(h, 1));
  StreamOptions options;
  options.compile.threads = threads;
  const auto voice = std::make_shared<Stream::Voice>(Stream(model, given(model, inputs), features, options).voice());
  const Array x = inputs.at("x");
  const auto y = std::make_shared<Array>(DType::F32, Shape{steps});
  const auto call = [=] {
    voice->reset();
    const auto in = std::as_const(x).data<float>();
    const auto out = y->data<float>();
    for (std::int64_t t = 0; t < steps; ++t)
      voice->step(in.subspan(static_cast<std::size_t>(t * features), static_cast<std::size_t>(features)),
                  out.subspan(static_cast<std::size_t>(t), 1));
  };
  call();
  return {call, {{"y", y->clone()}}, steps, "Stream::Voice"};
}

}  // namespace hotloop::bench
