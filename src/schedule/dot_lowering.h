// DotLowering: the statements of one DotPlan (dot_lowering.cpp), and the copies of its factors that they read (dot_copies.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "hotloop/error.h"
#include "schedule/bound_factors.h"
#include "schedule/dot_factors.h"
#include "schedule/dot_plan.h"

namespace hotloop {

// One axis of the loop nest around a dot: extent and strides in every operand.
struct NestAxis {
  kernel::Extent extent;
  std::vector<std::int64_t> a, b;  // one a term
  std::int64_t c = 0, init = 0;
};

class DotLowering {
 public:
  DotLowering(LoweringContext& context, const DotPlan& plan, const Storage& target, bool accumulate)
      : context_(context), plan_(plan), target_(target), swap_(rows_from_rhs(context, plan)) {
    for (const Node* term : plan.terms) {
      const auto bound = swap_ ? std::nullopt : bound_factor(context, *term);
      const auto a = context.find(term->operands[swap_ ? 1 : 0]),
                 b = bound ? bound->storage : context.find(term->operands[swap_ ? 0 : 1]);
      HOTLOOP_CHECK(a && b, "operands of a dot are in memory");
      a_.push_back(*a);
      b_.push_back(*b);
      panel_.push_back(bound ? bound->panel : 0);
      b_in_pairs_.push_back(bound && bound->in_pairs);
    }
    if (accumulate)
      init_ = target;
    else if (plan.init)
      init_ = context.find(*plan.init);
    HOTLOOP_CHECK(!plan.init || (init_ && !accumulate), "the start of a sum of dots is in memory");
  }

  kernel::Block run();
  bool is_narrow() const;
  // Whether a product sums over more separate axes than a statement takes; of pairs, which lie anew, whether it may.
  bool sums_in_loops() const {
    const Node& dot = *plan_.terms[0];
    return (rounds_factors(dot) ? shape_of(dot).lhs_contract.size() : contraction(0).size()) > most_contracted;
  }

 private:
  static constexpr std::size_t most_contracted = 3;  // separate axes, by a statement

  enum class Side { Batch, Rows, Columns };
  std::vector<NestAxis> axes_of(Side side) const;
  std::vector<kernel::KDim> contraction(std::size_t term) const;
  std::size_t unchanged_from(int buffer, const kernel::Affine& offset) const;
  std::size_t columns_region(std::size_t term) const {
    return b_region_.empty() ? unchanged_from(b_[term].buffer, b_[term].offset) : b_region_[term];
  }
  std::size_t region_of(const Storage& source) const;
  kernel::Block run_narrow();
  kernel::Block sum_in_loops(kernel::Dot dot);
  std::int64_t near_bytes() const { return context_.options().target.l2_bytes / 4; }  // of copies that a tile makes
  std::vector<std::size_t> order_of_sum(std::size_t term) const;
  Halving halving(std::size_t term, bool of_rows) const;
  void round_factors(kernel::Block& before);
  Storage rounded(Value v, const Storage& source, const Halving& halving, kernel::Block& before, std::size_t& region);
  bool pays_to_copy_before(std::size_t region, FactorReads reads, const std::vector<CopiedAxis>& axes) const;
  std::optional<int> try_copy(const kernel::Access& source, const std::vector<CopiedAxis>& axes,
                              const FactorReads& reads, std::size_t region, kernel::Block& before);
  void make_contiguous(Storage& source, std::int64_t& k_stride, std::int64_t k, std::vector<NestAxis>& axes, bool is_a,
                       kernel::Block& before);
  // The axes of a Dot as a statement: its rows, its columns and the loops around it.
  struct Nest {
    NestAxis rows, columns;
    std::vector<NestAxis> outer;
    std::vector<kernel::Var> counters;  // of the loops
    std::int64_t panel;
  };
  FactorReads reads_of(std::size_t term, const kernel::DotSegment& segment, const Nest& nest, std::size_t loop) const;
  bool pays_to_pack_once(std::size_t term, const kernel::DotSegment& segment, const Nest& nest) const;
  void try_pack(std::size_t term, kernel::DotSegment& segment, const Nest& nest, std::size_t loop,
                kernel::Block& before);
  void copy_columns(std::size_t term, kernel::DotSegment& segment, const Nest& nest,
                    std::vector<kernel::Block>& before);

  LoweringContext& context_;
  const DotPlan& plan_;
  const Storage& target_;
  bool swap_;
  std::vector<Storage> a_, b_;
  std::vector<std::int64_t> panel_;  // columns of the panels that b_ lies in already; 0: it does not
  std::vector<bool> b_in_pairs_;     // already
  // Of factors in bfloat16: which contracted axis is halved (see DotFactor), a number in the lists of DotShape, none where they are only rounded;
  // and the region before which b_ is laid out.
  std::vector<std::size_t> halved_, b_region_;
  bool pairs_ = false, in_blocks_ = false;
  std::optional<Storage> init_;
};

}  // namespace hotloop
