// What ops declare of their axes (OpDef::axes) and of attributes that hold extents (OpDef::extents), against their definitions.
#include <set>

#include "core/index.h"
#include "hotloop/error.h"
#include "ir/axis_links.h"
#include "ir/resize.h"
#include "op_checks.h"
#include "ops/rules/walk.h"

namespace hotloop::ir {
namespace {

// `extent` elements along an axis, from `first` on.
Array part_of(const Array& a, int axis, std::int64_t first, std::int64_t extent) {
  Shape shape = a.shape();
  shape[axis] = extent;
  return rearranged(a, shape, [&, strides = strides_of(a.shape())](Index index) {
    index[at(axis)] += first;
    return flat_index(index, strides);
  });
}

// `a` with other values at `index` along an axis, each one of a's own.
Array changed_at(const Array& a, int axis, std::int64_t index_along, Rng& rng) {
  return rearranged(a, a.shape(), [&, strides = strides_of(a.shape())](const Index& index) {
    return index[at(axis)] == index_along ? static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(a.size()))
                                          : flat_index(index, strides);
  });
}

// Looks for what contradicts the links that a sample of an op is said to have.
class LinkCheck {
 public:
  LinkCheck(const OpDef& def, const Sample& sample, std::vector<AxisLink> links, Rng& rng)
      : def_(def), sample_(sample), links_(std::move(links)), rng_(rng), graph_(graph_of(def, sample)) {
    result_ = evaluate(*graph_, sample.operands)[0];
  }

  // What is wrong; "" if nothing is.
  std::string complaint() {
    for (const AxisLink& link : links_)
      if (!is_link(link)) return text(link) + " is no link";
    for (int k = 0; k < static_cast<int>(sample_.operands.size()); ++k)
      for (int axis = 0; axis < sample_.operands[at(k)].shape().rank(); ++axis)
        if (const std::string wrong = of_changes(k, axis); !wrong.empty()) return wrong;
    try {
      for (int to = 0; to < rank(); ++to)
        if (const std::string wrong = of_parts(to); !wrong.empty()) return wrong;
      for (const AxisLink& link : links_)
        if (link.use == AxisUse::Summed && !is_sum(link.to)) return text(link) + " is no sum";
    } catch (const UserError& e) {
      return std::string("a part of the operands is refused: ") + e.what();
    }
    return "";
  }

 private:
  int rank() const { return result_.shape().rank(); }
  std::int64_t extent_of(const AxisLink& link) const { return sample_.operands[at(link.operand)].shape()[link.axis]; }
  static std::string text(const AxisLink& link) {
    return "axis " + std::to_string(link.axis) + " of operand " + std::to_string(link.operand) + " to " +
           std::to_string(link.to);
  }

  bool is_link(const AxisLink& link) const {
    if (std::ranges::count(links_, link) != 1) return false;
    if (link.operand < 0 || link.operand >= static_cast<int>(sample_.operands.size())) return false;
    const bool has_axis = link.axis >= 0 && link.axis < sample_.operands[at(link.operand)].shape().rank();
    const bool is_in_result = link.to >= 0 && link.to < rank();
    switch (link.use) {
      case AxisUse::Same:
      case AxisUse::Reordered: return has_axis && is_in_result && extent_of(link) == result_.shape()[link.to];
      case AxisUse::Summed:
        return has_axis && link.to >= rank() && std::ranges::all_of(links_, [&](const AxisLink& other) {
                 return other.to != link.to || (other.use == AxisUse::Summed && extent_of(other) == extent_of(link));
               });
      case AxisUse::Mixed: return (has_axis || link.axis == -1) && (is_in_result || (link.to == -1 && has_axis));
    }
    return false;
  }

  Array evaluated(const std::vector<Array>& operands, const Attrs& attrs) const {
    return evaluate(*graph_of(def_, {operands, attrs, {}}), operands)[0];
  }
  Array evaluated(const std::vector<Array>& operands) const { return evaluated(operands, sample_.attrs); }

  // Where elements at one place along an axis change, so does the result at one place of the same axis; nowhere, if nothing is read.
  std::string of_changes(int operand, int axis) {
    const std::int64_t extent = sample_.operands[at(operand)].shape()[axis];
    const auto is_here = [&](const AxisLink& link) { return link.operand == operand && link.axis == axis; };
    const bool is_read = std::ranges::any_of(links_, is_here);
    for (std::int64_t i = 0; extent > 1 && i < extent && sample_.operands[at(operand)].size() > 0; ++i) {
      std::vector<Array> operands = sample_.operands;
      operands[at(operand)] = changed_at(operands[at(operand)], axis, i, rng_);
      const Array other = evaluated(operands);
      std::vector<std::set<std::int64_t>> places(at(rank()));
      std::int64_t flat = 0;
      bool any = false;
      for_each_index(result_.shape(), [&](const Index& index) {
        const double a = result_.at(flat), b = other.at(flat);
        ++flat;
        if (a == b || (a != a && b != b)) return;
        any = true;
        for (int to = 0; to < rank(); ++to) places[at(to)].insert(index[at(to)]);
      });
      if (any && !is_read)
        return "axis " + std::to_string(axis) + " of operand " + std::to_string(operand) + " is read";
      for (const AxisLink& link : links_) {
        if (!any || !is_here(link)) continue;
        if ((link.use == AxisUse::Same && places[at(link.to)] != std::set{i}) ||
            (link.use == AxisUse::Reordered && places[at(link.to)].size() != 1))
          return text(link) + " goes elsewhere, too";
      }
    }
    return "";
  }

  // A part of the result along an axis is made of those parts of the operands, or of none if the op makes the axis.
  std::string of_parts(int to) const {
    const std::int64_t extent = result_.shape()[to];
    const auto is_here = [&](const AxisLink& link) { return link.to == to; };
    const bool is_new = std::ranges::none_of(links_, is_here);
    if (is_new && (def_.extents.empty() || (def_.kind == OpKind::RandomBits && to > 0)))
      return "";  // drawn by flat index
    for (const AxisLink& link : links_)
      if (is_here(link) && link.use != AxisUse::Same) return "";
    for (const auto& [first, size] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, extent - 1}, {1, 1}}) {
      if (extent < 2 || (is_new && first > 0)) continue;
      std::vector<Array> operands = sample_.operands;
      for (const AxisLink& link : links_)
        if (is_here(link)) operands[at(link.operand)] = part_of(operands[at(link.operand)], link.axis, first, size);
      const Array wanted = part_of(result_, to, first, size);
      if (!close(evaluated(operands, resized_attrs(node_of(*graph_), wanted.shape())), wanted, 0))
        return "a part along axis " + std::to_string(to) + " is not made of the parts linked to it";
    }
    return "";
  }

  // What two parts give adds up to what all gives and what nothing does.
  bool is_sum(int number) const {
    const auto of_part = [&](std::int64_t first, std::int64_t end) {
      std::vector<Array> operands = sample_.operands;
      for (const AxisLink& link : links_) {
        if (link.to != number) continue;
        const std::int64_t extent = extent_of(link), from = std::min(first, extent), to = std::min(end, extent);
        operands[at(link.operand)] = part_of(operands[at(link.operand)], link.axis, from, to - from);
      }
      return evaluated(operands).cast(DType::F64);
    };
    constexpr std::int64_t all = 1 << 20;
    const Array first = of_part(0, 1), rest = of_part(1, all), none = of_part(0, 0);
    for (std::int64_t i = 0; i < result_.size(); ++i)
      if (std::fabs(first.at(i) + rest.at(i) - none.at(i) - result_.at(i)) > 1e-5 * scale_of(result_)) return false;
    return true;
  }

  const OpDef& def_;
  const Sample& sample_;
  std::vector<AxisLink> links_;
  Rng& rng_;
  std::shared_ptr<const Graph> graph_;
  Array result_;
};

TEST(OpAxes, AreWhatTheDefinitionDoes) {
  for (const OpDef& def : all_ops()) {
    if (def.kind == OpKind::Input || def.kind == OpKind::Loop || def.kind == OpKind::Call) {
      EXPECT_FALSE(def.axes) << def.name;
      continue;
    }
    EXPECT_EQ(static_cast<bool>(def.axes), def.num_operands != 0) << def.name << " must say how its axes run";
    Rng rng(op_test_seed);
    for (const DType dtype : {DType::F32, DType::F64})
      for (const Sample& sample : def.samples(rng, dtype)) {
        const auto graph = graph_of(def, sample);
        EXPECT_EQ(LinkCheck(def, sample, axis_links(node_of(*graph)), rng).complaint(), "")
            << def.name << ", " << text_of(sample);
      }
  }
}

TEST(OpAxes, WhatIsWronglyDeclaredIsFound) {
  Rng rng(op_test_seed);
  const auto array = [](const Shape& shape) {
    Array a(DType::F32, shape);
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, static_cast<double>(i * 7 % 11));
    return a;
  };
  const auto integers = [](std::initializer_list<std::int64_t> values) { return std::vector<std::int64_t>(values); };
  const auto complaint = [&](const char* name, const Sample& sample, std::vector<AxisLink> links) {
    return LinkCheck(op(name), sample, std::move(links), rng).complaint();
  };
  const Sample square{{array({3, 3})}, {{"permutation", integers({1, 0})}}, {}};
  EXPECT_EQ(complaint("transpose", square, {{0, 0, 1}, {0, 1, 0}}), "");
  EXPECT_EQ(complaint("transpose", square, {{0, 0, 0}, {0, 1, 1}}), "axis 0 of operand 0 to 0 goes elsewhere, too");

  const Sample turned{{array({4})}, {{"axes", integers({0})}}, {}};
  EXPECT_EQ(complaint("reverse", turned, {{0, 0, 0, AxisUse::Reordered}}), "");
  EXPECT_EQ(complaint("reverse", turned, {{0, 0, 0}}), "axis 0 of operand 0 to 0 goes elsewhere, too");
  EXPECT_EQ(complaint("reverse", turned, {}), "axis 0 of operand 0 is read");

  const Sample sum{{array({3}), array({3})}, {}, {}};
  EXPECT_EQ(complaint("add", sum, {{0, 0, 0}, {1, 0, 0}}), "");
  EXPECT_EQ(complaint("add", sum, {{0, 0, 0}}), "axis 0 of operand 1 is read");
  EXPECT_EQ(complaint("add", sum, {{0, 0, 0}, {0, 0, 0}, {1, 0, 0}}), "axis 0 of operand 0 to 0 is no link");
  EXPECT_EQ(complaint("add", sum, {{0, 0, 0}, {1, 0, -1, AxisUse::Mixed}}).substr(0, 33),
            "a part of the operands is refused");

  const Sample largest{{array({4, 3})}, {{"axes", integers({0})}}, {}};
  EXPECT_EQ(complaint("reduce_max", largest, {{0, 0, -1, AxisUse::Mixed}, {0, 1, 0}}), "");
  EXPECT_EQ(complaint("reduce_max", largest, {{0, 0, 1, AxisUse::Summed}, {0, 1, 0}}),
            "axis 0 of operand 0 to 1 is no sum");
  EXPECT_EQ(complaint("reduce_max", largest, {{0, 0, 0}, {0, 1, -1, AxisUse::Mixed}}),
            "axis 0 of operand 0 to 0 is no link");

  // A table is not cut along the axis that it is looked up along, and what is added to it goes anywhere there.
  Array places(DType::I32, {3});
  for (std::int64_t i = 0; i < 3; ++i) places.set(i, static_cast<double>(2 - i));
  const Sample table{{array({3}), places, array({3})}, {{"axis", std::int64_t{0}}}, {}};
  const std::vector<AxisLink> added{{0, 0, 0}, {1, 0, 1, AxisUse::Summed}, {2, 0, 1, AxisUse::Summed}};
  EXPECT_EQ(complaint("scatter_add", table, {added[0], added[1], added[2], {1, -1, 0, AxisUse::Mixed}}), "");
  EXPECT_EQ(complaint("scatter_add", table, added), "a part along axis 0 is not made of the parts linked to it");
}

}  // namespace
}  // namespace hotloop::ir
