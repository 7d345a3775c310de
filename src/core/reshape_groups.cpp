#include "core/reshape_groups.h"

namespace hotloop {

std::vector<ReshapeGroup> reshape_groups(const Shape& in, const Shape& out) {
  std::vector<ReshapeGroup> groups;
  if (in.size() == 0) return groups;
  int i = 0, o = 0;
  const auto skip_ones = [](const Shape& s, int& k) {
    while (k < s.rank() && s[k] == 1) ++k;
  };
  for (;;) {
    skip_ones(in, i);
    skip_ones(out, o);
    if (i >= in.rank() || o >= out.rank()) return groups;
    ReshapeGroup g{{i}, {o}};
    std::int64_t a = in[i++], b = out[o++];
    while (a != b) {
      if (a < b) {
        skip_ones(in, i);
        g.in.push_back(i);
        a *= in[i++];
      } else {
        skip_ones(out, o);
        g.out.push_back(o);
        b *= out[o++];
      }
    }
    groups.push_back(std::move(g));
  }
}

std::vector<std::pair<int, int>> matched_ones(const Shape& in, const Shape& out) {
  std::vector<std::pair<int, int>> pairs;
  if (in.size() == 0) return pairs;
  int i = 0, o = 0;
  const auto match_until = [&](int end_in, int end_out) {
    for (;; ++i, ++o) {
      while (i < end_in && in[i] != 1) ++i;
      while (o < end_out && out[o] != 1) ++o;
      if (i >= end_in || o >= end_out) return;
      pairs.emplace_back(i, o);
    }
  };
  for (const ReshapeGroup& g : reshape_groups(in, out)) {
    match_until(g.in.front(), g.out.front());
    i = g.in.back() + 1;
    o = g.out.back() + 1;
  }
  match_until(in.rank(), out.rank());
  return pairs;
}

}  // namespace hotloop
