// Runs a fuzz target without libFuzzer: on the files of a folder, and on mutations of them that are the same every time.
// usage: <target>_replay FOLDER [mutations of each file]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::string& input) {
  // Of its own size, so that a sanitizer sees a read beyond the end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

// One to four of: a byte changed, a piece removed, a piece copied elsewhere, a cut.
std::string mutated(std::string text, std::mt19937_64& rng) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng() % std::max<std::size_t>(1, n)); };
  for (std::size_t i = 0, n = 1 + below(4); i < n && !text.empty(); ++i) {
    const std::size_t at = below(text.size()), length = 1 + below(std::min<std::size_t>(16, text.size() - at));
    switch (below(4)) {
      case 0: text[at] = static_cast<char>(rng()); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(below(text.size()), text.substr(at, length)); break;
      default: text.resize(at); break;
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: replay FOLDER [mutations of each file]\n", stderr), 2;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  std::ranges::sort(files);
  const long mutations = argc > 2 ? std::atol(argv[2]) : 200;
  std::mt19937_64 rng(1);
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    run(text);
    for (long i = 0; i < mutations; ++i) run(mutated(text, rng));
  }
  std::printf("%zu files, %ld mutations of each\n", files.size(), mutations);
  return files.empty() ? 1 : 0;
}
