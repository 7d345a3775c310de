// A table that is larger than the memory it may take: the limit is the system's, so that nothing can cheat.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "data/records.h"
#include "hotloop/data.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

TEST(Records, AnyPiecesGiveTheSameCells) {
  const std::string text =
      "\xEF\xBB\xBF"
      "a,\"b\"\"c\",d\r\n\r\n\"1\r\n2\", 3 ,\n4,\"\",\"5\"";
  const auto read = [&](std::size_t piece) {
    std::string out;
    Records records(
        [&, at = std::size_t{0}](std::string& buffer) mutable {
          const std::string_view next = std::string_view(text).substr(std::min(at, text.size()), piece);
          at += next.size();
          buffer += next;
          return !next.empty();
        },
        "t", ',');
    for (std::vector<std::string_view> cells; records.next(cells);) {
      out += std::to_string(records.line());
      for (const std::string_view cell : cells) out += "|" + std::string(cell);
      out += "\n";
    }
    return out;
  };
  for (std::size_t piece = 1; piece <= text.size() + 1; ++piece)
    EXPECT_EQ(read(piece), "1|a|b\"c|d\n3|1\r\n2|3|\n5|4||5\n") << piece;
}

std::size_t address_space_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Rows of a table whose text alone is 40 MB; returns its path.
std::filesystem::path write_large_table(std::int64_t rows) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("large." + std::to_string(::getpid()) + ".csv");
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("a,b,c,d\n", file);
  for (std::int64_t i = 0; i < rows; ++i)
    std::fprintf(file, "%08.3f,%09.4f,%09.4f,%09.4f\n", static_cast<double>(i % 7919),
                 static_cast<double>(i * 31 % 9973), static_cast<double>(i * 57 % 9941),
                 static_cast<double>(i * 3 % 8999));
  std::fclose(file);
  return path;
}

// Reads the table, draws all training samples once and applies the preparation to all rows; exit status 0 if that worked.
int prepare(const std::filesystem::path& path, std::int64_t rows) {
  Recipe recipe{.inputs = {"a", "b", "c", "d", "a_before"}, .targets = {"a"}, .length = 24, .horizon = 1};
  recipe.lags = {{"a_before", "a", 100}};
  const Samples samples(*open_csv(path), recipe, {.bytes = 8 << 20});
  Array x(DType::F32, {64, 24, 5});
  std::vector<std::int64_t> batch(64);
  for (std::int64_t first = 0; first + 64 <= samples.train().size(); first += 64) {
    for (std::int64_t i = 0; i < 64; ++i) batch[static_cast<std::size_t>(i)] = first + i;
    samples.train().gather(batch, {.inputs = x.raw()});
  }
  std::int64_t applied = 0;
  samples.preparation().apply(*open_csv(path), 256,
                              [&](const PreparedBlock& block) { applied += block.inputs.shape()[0]; });
  return applied == rows - 100 - 23 ? 0 : 3;
}

TEST(Memory, ATableLargerThanTheLimitStreams) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take address space of their own";
#endif
  constexpr std::int64_t rows =
      1'000'000;  // 39 MB of text; 40 MB as read, 72 derived, 24 prepared, all as bytes of rows
  const std::filesystem::path path = write_large_table(rows);
  EXPECT_GT(std::filesystem::file_size(path), 38'000'000u);
  const pid_t child = ::fork();
  if (child == 0) {
    // Above what the process has: the 8 MB it is allowed, 8 bytes a sample (grown by doubling), blocks and buffers.
    const rlim_t limit = address_space_bytes() + (36u << 20);
    const rlimit all{limit, limit};
    if (::setrlimit(RLIMIT_AS, &all) != 0) ::_exit(4);
    try {
      ::_exit(prepare(path, rows));
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(5);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::remove(path);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hotloop::data
