// RTNeural (BSD-3-Clause, https://github.com/jatinchowdhury18/RTNeural) with sizes known at compile time, which is its fast interface. Built
// four times: on Eigen, its default, on the standard library with -ffast-math, and on xsimd with vectors of 512 and of 256 bits.
#include <RTNeural/RTNeural.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "protocol.h"

namespace {

using namespace hotloop::bench;
using hotloop::Array;

constexpr int features = 8;

// (4H, K) as rows of K: what its setters take. Gates i, f, g, o are its i, f, c, o.
std::vector<std::vector<float>> transposed(const Array& w) {
  const auto rows = static_cast<std::size_t>(w.shape()[0]), columns = static_cast<std::size_t>(w.shape()[1]);
  std::vector<std::vector<float>> out(columns, std::vector<float>(rows));
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < columns; ++k) out[k][i] = w.data<float>()[i * columns + k];
  return out;
}

template <int H> Prepared stream_of(const Sizes& sizes, const Arrays& inputs) {
  using Model =
      RTNeural::ModelT<float, features, 1, RTNeural::LSTMLayerT<float, features, H>, RTNeural::DenseT<float, H, 1>>;
  const auto model = std::make_shared<Model>();
  auto& lstm = model->template get<0>();
  lstm.setWVals(transposed(inputs.at("weight_ih_l0")));
  lstm.setUVals(transposed(inputs.at("weight_hh_l0")));
  std::vector<float> bias(4 * H);
  for (std::size_t i = 0; i < bias.size(); ++i)
    bias[i] = inputs.at("bias_ih_l0").data<float>()[i] + inputs.at("bias_hh_l0").data<float>()[i];
  lstm.setBVals(bias);
  const auto weight = inputs.at("head.weight").data<float>();
  model->template get<1>().setWeights({std::vector<float>(weight.begin(), weight.end())});
  model->template get<1>().setBias(inputs.at("head.bias").data<float>().data());

  const std::int64_t steps = sizes["T"];
  const Array x = inputs.at("x");
  const auto y = std::make_shared<Array>(hotloop::DType::F32, hotloop::Shape{steps});
  // On xsimd it reads whole vectors from aligned memory.
  constexpr std::int64_t padded = 16;
  const auto bytes = static_cast<std::size_t>(steps * padded) * sizeof(float);
  const std::shared_ptr<float> rows(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
  std::memset(rows.get(), 0, bytes);
  for (std::int64_t t = 0; t < steps; ++t)
    std::memcpy(rows.get() + t * padded, std::as_const(x).data<float>().data() + t * features,
                features * sizeof(float));
  const auto call = [=] {
    model->reset();
    const float* in = rows.get();
    float* out = y->data<float>().data();
    for (std::int64_t t = 0; t < steps; ++t) out[t] = model->forward(in + t * padded);
  };
  call();
  return {call, {{"y", y->clone()}}, steps, RTNEURAL_BUILD};
}

Prepared stream_native(const Sizes& sizes, const Arrays& inputs, int) {
  if (sizes["I"] == features) {
    if (sizes["H"] == 16) return stream_of<16>(sizes, inputs);
    if (sizes["H"] == 64) return stream_of<64>(sizes, inputs);
    if (sizes["H"] == 128) return stream_of<128>(sizes, inputs);
  }
  throw Unsupported("sizes are known at compile time: I 8, H 16, 64 or 128");
}

}  // namespace

int main(int argc, char** argv) {
  return serve(argc, argv, "rtneural", "RTNeural 1fb1f07, " RTNEURAL_BUILD, {{"stream_native", stream_native}});
}
