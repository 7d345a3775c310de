// Any text is a table or a UserError, the same table whatever the pieces it comes in; and samples or a UserError.
#include <algorithm>
#include <cstdlib>

#include "data/records.h"
#include "hotloop/data.h"
#include "hotloop/error.h"

using namespace hotloop::data;

namespace {

// All cells of all records with their lines, or the message, of a text that comes in pieces.
std::string read(std::string_view text, std::size_t piece) {
  std::string out;
  try {
    Records records(
        [=, at = std::size_t{0}](std::string& buffer) mutable {
          const std::string_view next = text.substr(std::min(at, text.size()), piece);
          at += next.size();
          buffer += next;
          return !next.empty();
        },
        "fuzz", ',');
    for (std::vector<std::string_view> cells; records.next(cells);) {
      out += std::to_string(records.line()) + ":";
      for (const std::string_view cell : cells) out += std::string(cell) + "\x1f";
    }
  } catch (const hotloop::UserError& e) {
    out += e.what();
  }
  return out;
}

void prepare(std::string_view text, const Recipe& recipe) {
  try {
    const Samples samples(*open_csv_text(std::string(text), "fuzz"), recipe, {.bytes = 1 << 20});
    const std::string json = samples.preparation().json();
    if (Preparation::parse(json, "again").json() != json) std::abort();
    std::int64_t applied = 0;
    samples.preparation().apply(*open_csv_text(std::string(text), "fuzz"), 3,
                                [&](const PreparedBlock& block) { applied += block.inputs.shape()[0]; });
    if (applied < samples.train().size()) std::abort();
  } catch (const hotloop::UserError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 20000) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string whole = read(text, size + 1);
  for (const std::size_t piece : {1, 2, 7})
    if (read(text, piece) != whole) std::abort();
  Recipe windows{.inputs = {"a", "a_before", "day"}, .targets = {"b"}, .length = 2, .horizon = 1};
  windows.missing = Fill::Forward;
  windows.missing_rules = {{{"b"}, Fill::Drop, false}};
  windows.lags = {{"a_before", "a", 2}};
  windows.cycles = {{.name = "day", .of = Cycle::Of::DayOfYear}};
  windows.time = "t";
  windows.group = "g";
  windows.split = {.by = Split::By::Random};
  prepare(text, windows);
  Recipe series{.inputs = {"a*", "g"}, .targets = {"c"}, .sample = "s", .task = Task::Classification};
  series.one_hots = {{"g", true}};
  series.missing = Fill::Mean;
  series.indicator = true;
  prepare(text, series);
  return 0;
}
