// One step of LSTM(8, H) and Linear(H, 1) written by hand for AVX-512, H 16, 64 or 128.
//
// Sixteen units are a block, whose four gates lie side by side, and two blocks are a panel: one number of [x; h] after the other is broadcast
// over its row of it, and the gates are computed where their sums lie. On odd steps panels and rows are visited from the last to the
// first, so that the weights that the step before ended with are still in the first cache. It takes liberties that the compiler does
// not: sums in another order on odd steps, several chains for one sum where registers are left, reciprocals by approximation and one Newton
// step, and a tanh without relative accuracy near 0.
#include <immintrin.h>

#include <cstring>
#include <memory>
#include <utility>

#include "by_hand_kinds.h"

namespace {

using V = __m512;
constexpr int lanes = 16, features = 8, num_gates = 4;

V all(float x) { return _mm512_set1_ps(x); }

V exponential(V x) {
  x = _mm512_min_ps(_mm512_max_ps(x, all(-87)), all(88));
  const V n = _mm512_roundscale_ps(_mm512_mul_ps(x, all(1.44269504F)), 8);
  const V r = _mm512_fnmadd_ps(n, all(-2.12194440e-4F), _mm512_fnmadd_ps(n, all(0.693359375F), x));
  // Two halves of the polynomial side by side.
  const V square = _mm512_mul_ps(r, r);
  const V low = _mm512_fmadd_ps(all(1.6666665459e-1F), r, all(5.0000001201e-1F));
  const V high = _mm512_fmadd_ps(_mm512_fmadd_ps(all(1.9875691500e-4F), r, all(1.3981999507e-3F)), square,
                                 _mm512_fmadd_ps(all(8.3334519073e-3F), r, all(4.1665795894e-2F)));
  const V tail = _mm512_fmadd_ps(high, square, low);
  return _mm512_scalef_ps(_mm512_fmadd_ps(tail, square, _mm512_add_ps(r, all(1))), n);
}

V sigmoid(V x) {
  const V d = _mm512_add_ps(all(1), exponential(_mm512_sub_ps(_mm512_setzero_ps(), x)));
  const V y = _mm512_rcp14_ps(d);
  return _mm512_fmadd_ps(y, _mm512_fnmadd_ps(d, y, all(1)), y);
}

V tanh(V x) { return _mm512_fmsub_ps(all(2), sigmoid(_mm512_add_ps(x, x)), all(1)); }

template <int H> class Stream {
 public:
  explicit Stream(const hotloop::bench::Arrays& inputs);
  void reset() {
    std::memset(row_, 0, sizeof row_);
    std::memset(c_, 0, sizeof c_);
    backwards_ = false;
  }
  [[gnu::noinline]] float step(const float* x);

 private:
  static constexpr int num_blocks = H / lanes, blocks = num_blocks < 2 ? num_blocks : 2, panels = num_blocks / blocks;
  static constexpr int vectors = num_gates * blocks, rows = features + H;
  // Sums of few vectors would wait for each other: their rows are dealt to several chains.
  static constexpr int chains = vectors >= 8 ? 2 : 3;
  static_assert(rows % chains == 0);

  template <bool backwards> void panel(int p, V& out);

  alignas(64) float weights_[panels][rows][vectors][lanes], bias_[panels][vectors][lanes];
  alignas(64) float row_[rows], c_[H], next_h_[H], head_[H];
  float head_bias_;
  bool backwards_ = false;
};

template <int H> Stream<H>::Stream(const hotloop::bench::Arrays& inputs) {
  const auto of = [&](const char* name) { return inputs.at(name).data<float>().data(); };
  for (int p = 0; p < panels; ++p)
    for (int v = 0; v < vectors; ++v)
      for (int l = 0; l < lanes; ++l) {
        const int j = v % num_gates * H + (p * blocks + v / num_gates) * lanes + l;
        bias_[p][v][l] = of("bias_ih_l0")[j] + of("bias_hh_l0")[j];
        for (int k = 0; k < rows; ++k)
          weights_[p][k][v][l] =
              k < features ? of("weight_ih_l0")[j * features + k] : of("weight_hh_l0")[j * H + k - features];
      }
  std::memcpy(head_, of("head.weight"), sizeof head_);
  head_bias_ = of("head.bias")[0];
  reset();
}

template <int H> template <bool backwards> void Stream<H>::panel(int p, V& out) {
  V z[chains][vectors];
#pragma GCC unroll 16
  for (int v = 0; v < vectors; ++v) z[0][v] = _mm512_load_ps(bias_[p][v]);
#pragma GCC unroll 4
  for (int s = 1; s < chains; ++s)
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) z[s][v] = _mm512_setzero_ps();
  for (int i = 0; i < rows; i += chains) {
    const int k = backwards ? rows - chains - i : i;
#pragma GCC unroll 4
    for (int s = 0; s < chains; ++s) {
      const V a = all(row_[k + s]);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) z[s][v] = _mm512_fmadd_ps(a, _mm512_load_ps(weights_[p][k + s][v]), z[s][v]);
    }
  }
#pragma GCC unroll 4
  for (int s = 1; s < chains; ++s)
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) z[0][v] = _mm512_add_ps(z[0][v], z[s][v]);
#pragma GCC unroll 4
  for (int q = 0; q < blocks; ++q) {
    const V *gate = z[0] + num_gates * q, i = sigmoid(gate[0]), f = sigmoid(gate[1]), g = tanh(gate[2]),
            o = sigmoid(gate[3]);
    const int at = (p * blocks + q) * lanes;
    const V c = _mm512_fmadd_ps(f, _mm512_load_ps(c_ + at), _mm512_mul_ps(i, g)), h = _mm512_mul_ps(o, tanh(c));
    _mm512_store_ps(c_ + at, c);
    _mm512_store_ps(next_h_ + at, h);
    out = _mm512_fmadd_ps(h, _mm512_load_ps(head_ + at), out);
  }
}

template <int H> float Stream<H>::step(const float* x) {
  std::memcpy(row_, x, features * sizeof(float));
  V out = _mm512_setzero_ps();
  if (panels * rows * vectors * 64 > (32 << 10) && backwards_)
    for (int p = panels; p-- > 0;) panel<true>(p, out);
  else
    for (int p = 0; p < panels; ++p) panel<false>(p, out);
  backwards_ = !backwards_;
  for (int i = 0; i < H; i += lanes) _mm512_storeu_ps(row_ + features + i, _mm512_load_ps(next_h_ + i));
  return head_bias_ + _mm512_reduce_add_ps(out);
}

template <int H>
hotloop::bench::Prepared stream_of(const hotloop::bench::Sizes& sizes, const hotloop::bench::Arrays& inputs) {
  const auto stream = std::make_shared<Stream<H>>(inputs);
  const std::int64_t steps = sizes["T"];
  const hotloop::Array x = inputs.at("x");
  const auto y = std::make_shared<hotloop::Array>(hotloop::DType::F32, hotloop::Shape{steps});
  const auto call = [=] {
    stream->reset();
    const float* in = std::as_const(x).data<float>().data();
    float* out = y->data<float>().data();
    for (std::int64_t t = 0; t < steps; ++t) out[t] = stream->step(in + t * features);
  };
  call();
  return {call, {{"y", y->clone()}}, steps};
}

}  // namespace

hotloop::bench::Prepared stream_native(const hotloop::bench::Sizes& sizes, const hotloop::bench::Arrays& inputs, int) {
  if (sizes["I"] == features) {
    if (sizes["H"] == 16) return stream_of<16>(sizes, inputs);
    if (sizes["H"] == 64) return stream_of<64>(sizes, inputs);
    if (sizes["H"] == 128) return stream_of<128>(sizes, inputs);
  }
  throw hotloop::bench::Unsupported("sizes are known at compile time: I 8, H 16, 64 or 128");
}
