#include "protocol.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <vector>

#include "hotloop/npy.h"

namespace hotloop::bench {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out + "\"";
}

// Calls shorter than 100 us are timed several at once, so that the clock does not count.
std::string measure(const Prepared& prepared, double seconds) {
  prepared.call();
  auto start = Clock::now();
  prepared.call();
  const double once = since(start);
  const int block = static_cast<int>(std::clamp(1e-4 / std::max(once, 1e-9), 1.0, 10000.0));
  std::vector<double> times;
  const auto begin = Clock::now();
  const std::size_t fewest = once < seconds ? 3 : 1;  // rounds repeat it anyway
  while (times.size() < fewest || (since(begin) < seconds && times.size() < 100000)) {
    start = Clock::now();
    for (int i = 0; i < block; ++i) prepared.call();
    times.push_back(since(start) / block);
  }
  std::ranges::sort(times);
  const std::size_t n = times.size();
  const double median = n % 2 != 0 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
  const auto units = static_cast<double>(prepared.units);
  char text[160];
  std::snprintf(text, sizeof text, "{\"median\": %.9g, \"least\": %.9g, \"calls\": %zu}", median / units,
                times[0] / units, n * static_cast<std::size_t>(block));
  return text;
}

}  // namespace

const std::string& Sizes::text(const std::string& key) const {
  const auto it = values_.find(key);
  if (it == values_.end()) throw std::runtime_error("the task has no " + key);
  return it->second;
}
std::int64_t Sizes::operator[](const std::string& key) const { return std::stoll(text(key)); }
double Sizes::number(const std::string& key) const { return std::stod(text(key)); }

int serve(int argc, char** argv, const std::string& name, const std::string& versions,
          const std::map<std::string, Kind>& kinds) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  std::optional<Prepared> prepared;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command, answer;
    words >> command;
    try {
      if (command == "prepare") {
        std::string kind, folder, pair;
        words >> kind >> folder;
        Sizes sizes;
        while (words >> pair) sizes.set(pair.substr(0, pair.find('=')), pair.substr(pair.find('=') + 1));
        if (!kinds.contains(kind)) throw Unsupported(name + " has no " + kind);
        Arrays inputs;
        for (const auto& entry : std::filesystem::directory_iterator(folder + "/in"))
          inputs[entry.path().stem().string()] = io::load_npy(entry.path());
        const auto start = Clock::now();
        prepared = kinds.at(kind)(sizes, inputs, threads);
        const double seconds = since(start);
        for (const auto& [key, array] : prepared->results) io::save_npy(folder + "/out/" + key + ".npy", array);
        answer = "{\"prepared\": " + std::to_string(seconds) +
                 ", \"variant\": \"\", \"versions\": " + json_text(versions) +
                 ", \"note\": " + json_text(prepared->note) + "}";
      } else if (command == "time") {
        double seconds = 1;
        words >> seconds;
        if (!prepared) throw std::runtime_error("nothing is prepared");
        answer = measure(*prepared, seconds);
      } else {
        prepared.reset();
        answer = "{\"forgotten\": true}";
      }
    } catch (const Unsupported& error) {
      answer = "{\"unsupported\": " + json_text(error.what()) + "}";
    } catch (const std::exception& error) {
      answer = "{\"error\": " + json_text(error.what()) + "}";
    }
    std::cout << answer << std::endl;
  }
  return 0;
}

}  // namespace hotloop::bench
