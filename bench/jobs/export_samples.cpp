// Writes the samples that a configuration makes of its table as .npy files, for programs to be compared with.
// usage: export_samples CONFIG.toml FOLDER -> FOLDER/{train,validation,test}_{x,y,lengths}.npy
#include <cstdio>
#include <numeric>

#include "cli/job.h"
#include "hotloop/hotloop.h"

using namespace hotloop;

namespace {

void write(const data::Dataset& part, const std::filesystem::path& stem) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(part.size()));
  std::iota(all.begin(), all.end(), 0);
  Array x(part.input_dtype(), part.input_type(part.size()).shape);
  Array y(part.target_dtype(), part.target_type(part.size()).shape);
  Array lengths(DType::I32, {part.size()});
  part.gather(all, {.inputs = x.raw(), .targets = y.raw(), .lengths = lengths.data<std::int32_t>().data()});
  io::save_npy(stem.string() + "_x.npy", x);
  io::save_npy(stem.string() + "_y.npy", y);
  io::save_npy(stem.string() + "_lengths.npy", lengths);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return std::fputs("usage: export_samples CONFIG.toml FOLDER\n", stderr), 2;
  cli::JobSource source;
  source.path = argv[1];
  const data::Samples samples = cli::load_samples(cli::read_job(source));
  const std::filesystem::path folder(argv[2]);
  write(samples.train(), folder / "train");
  write(samples.validation(), folder / "validation");
  write(samples.test(), folder / "test");
  std::printf("%.17g %.17g\n", samples.target_scale().mean, samples.target_scale().std);
} catch (const UserError& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
