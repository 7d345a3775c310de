// Networks of layers put together at random. The output is the oracle's; a row alone, any number of threads, every step of a stream and the exported C
// give its bits. So are training and derivatives of every kind.
#include <cstring>
#include <span>

#include "arrays.h"
#include "compiled.h"
#include "exports.h"
#include "hotloop/stream.h"
#include "model_checks.h"
#include "random_network.h"
#include "seeds.h"
#include "transformed.h"

namespace hotloop::testing {
namespace {

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  const RandomNetwork n(seed);
  const Array wanted = oracle(n.model, n.params, n.x);
  const std::vector<Compiled> targets = llvm_targets();
  for (const Compiled& which : {targets[seed % targets.size()], targets.back()}) {
    SCOPED_TRACE(which.target);
    CompileOptions options = which.options();
    const auto output = [&] {
      return expect_the_same_bits(n.model, n.params, n.x, options, seed, n.has_stream ? Steps::OfAllRows : Steps::None);
    };
    const double tolerance = n.dtype == DType::F32 ? 2e-4 : 1e-11;
    expect_near(output(), wanted, tolerance, "the oracle");
    if (seed % 4 == 3) {
      SCOPED_TRACE("flush_denormals");
      options.flush_denormals = true;
      expect_near(output(), wanted, tolerance, "the oracle");
      options.flush_denormals = false;
    }
    if (n.dtype == DType::F32 && seed % 4 == 0 && !n.has_products_of_one()) {
      SCOPED_TRACE("bf16");
      options.dot_precision = "bf16";
      output();
    }
  }
}

// Row 0 in the exported C, from the object or from the source.
template <class T> void check_export(const RandomNetwork& n, std::uint64_t seed) {
  const std::string best = kernel::runnable_targets().back();
  const std::string level = level_of(best);
  const ExportedC files =
      export_c(n.model, n.params, n.features,
               {.name = "net", .target = level, .stream = {.buffers = n.model.init_buffers(n.dtype)}});
  CompileOptions options;
  options.target = best;
  const Array all = row_of(whole(n.model, n.params, n.x, options), 0), x = row_of(n.x, 0);
  Exports<T> exports(files, seed / 2 % 4 == 0);
  void* voice = exports.new_voice();
  ASSERT_EQ(exports.init(voice, nullptr), 0);
  const auto width = static_cast<std::size_t>(all.shape()[2]);
  for (std::int64_t t = 0; t < n.time; ++t) {
    const Array row = at_step(x, t), expected = at_step(all, t);
    std::vector<T> y(width);
    exports.step(voice, static_cast<const T*>(row.raw()), y.data());
    EXPECT_EQ(std::memcmp(y.data(), expected.raw(), expected.bytes()), 0) << "step " << t;
  }
}

TEST(RandomNetworks, AreTheOraclesAndTheSameBitsStepByStepAndAlone) { for_seeds(check, 16); }

TEST(RandomNetworks, TrainAsTheOracle) {
  for_seeds(
      [](std::uint64_t seed) {
        SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
        RandomNetwork n(seed);
        if (!n.params.empty()) expect_trains_as_the_oracle(n.model, n.params, n.x, n.rng, seed);
      },
      8);
}

// By parameters, or by the input alone; in training too, and of sequences of unequal length. Batches are of samples, of networks (ensembles), or of both.
void check_derivatives_of(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  RandomNetwork n(seed, RandomNetwork::Size::Small);
  Subject it{.arrays = n.params.flatten(), .rows = 1 + static_cast<std::int64_t>(seed / 5 % 4)};
  const std::size_t num_params = it.arrays.size();
  Array lengths(DType::I32, {n.batch});
  for (std::int64_t i = 0; i < n.batch; ++i)
    lengths.set(i, 1 + static_cast<double>(n.rng() % static_cast<std::uint64_t>(n.time)));
  it.arrays.push_back(n.x);
  it.arrays.push_back(lengths);
  it.function = [&](std::span<const Value> v) {
    nn::Context context;
    context.training = seed / 2 % 2 == 0;
    context.buffers = n.model.init_buffers(n.dtype).map([](const Array& a) { return constant(a); });
    if (seed / 4 % 3 == 0) context.lengths = v[num_params + 1];
    return std::vector{n.model.apply(n.params.unflatten(v.first(num_params)), v[num_params], context)};
  };
  const bool by_input = num_params == 0 || seed / 3 % 4 == 0;
  const std::uint64_t of = num_params == 0 ? 0 : seed / 11 % 3;
  it.axes.assign(num_params, of == 0 ? -1 : 0);
  it.axes.insert(it.axes.end(), {of == 1 ? -1 : 0, -1});
  for (std::size_t i = by_input ? num_params : 0; i < num_params + by_input; ++i) it.by.push_back(static_cast<int>(i));
  it.jacobian_by = it.by[n.rng() % it.by.size()];
  const Program program = transformed(it, seed % num_transforms, n.rng);
  expect_compiled_is_the_oracles(program, n.dtype == DType::F32 ? 2e-3 : 1e-9, seed, it.by);
}

TEST(RandomNetworks, HaveTheOraclesDerivatives) { for_seeds(check_derivatives_of, 26); }

TEST(RandomNetworks, GiveTheSameBitsInExportedC) {
  for_seeds(
      [](std::uint64_t seed) {
        SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
        const RandomNetwork n(seed);
        if (!n.has_stream) return;
        n.dtype == DType::F32 ? check_export<float>(n, seed) : check_export<double>(n, seed);
      },
      6);
}

}  // namespace
}  // namespace hotloop::testing
