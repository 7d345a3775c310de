// What harness/worker.py does for Python, for programs: reads `prepare KIND FOLDER key=value...`, `time SECONDS` and `forget` from
// standard input and answers each with a line of JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "hotloop/array.h"

namespace hotloop::bench {

class Sizes {
 public:
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  bool has(const std::string& key) const { return values_.contains(key); }
  const std::string& text(const std::string& key) const;
  std::int64_t operator[](const std::string& key) const;
  double number(const std::string& key) const;

 private:
  std::map<std::string, std::string> values_;
};

using Arrays = std::map<std::string, Array>;

struct Prepared {
  std::function<void()> call;
  Arrays results;          // compared with the reference before any time is taken
  std::int64_t units = 1;  // of the task in one call
  std::string note = {};
};

// Thrown for sizes that a kind does not do.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Kind = std::function<Prepared(const Sizes&, const Arrays&, int threads)>;

// argv: the number of threads. Returns main's status.
int serve(int argc, char** argv, const std::string& name, const std::string& versions,
          const std::map<std::string, Kind>& kinds);

}  // namespace hotloop::bench
