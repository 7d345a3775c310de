#include "schedule/near_memory.h"

#include <algorithm>

#include "schedule/accesses.h"

namespace hotloop::kernel {
namespace {

double points_of(const Map& map) {
  double points = 1;
  for (const Dim& d : map.dims) points *= static_cast<double>(d.extent.bound);
  return points;
}
double points_of(const Dot& dot) {
  double depth = 0;
  for (const DotSegment& s : dot.segments) depth += static_cast<double>(s.depth());
  return static_cast<double>(dot.m.bound) * static_cast<double>(dot.n.bound) * depth;
}
template <class Statement> double points_of(const Statement&) { return 1; }

class Counter {
 public:
  explicit Counter(const Program& program) : program_(program), uses_(program.buffers.size()) {}

  void block(const Block& block, double times) {
    for (const Stmt& stmt : block)
      std::visit(
          [&](const auto& s) {
            double inside = times;
            if constexpr (std::is_same_v<std::decay_t<decltype(s)>, For>)
              inside *= static_cast<double>(std::max<std::int64_t>(s.trip.bound, 1));
            const double points = points_of(s);
            for_each_part(
                s, [&](const Use& use) { add(use.access->buffer, times * points); },
                [&](const Block& inner) { this->block(inner, inside); });
          },
          stmt.node);
  }
  std::vector<double> run() {
    block(program_.body, 1);
    return std::move(uses_);
  }

 private:
  void add(int buffer, double accesses) {
    if (buffer < 0) return;
    const auto elements = program_.buffers[static_cast<std::size_t>(buffer)].elements;
    uses_[static_cast<std::size_t>(buffer)] += accesses / static_cast<double>(std::max<std::int64_t>(elements, 1));
  }

  const Program& program_;
  std::vector<double> uses_;
};

}  // namespace

std::vector<double> uses_of_an_element(const Program& program) { return Counter(program).run(); }

}  // namespace hotloop::kernel
