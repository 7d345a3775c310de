// DotPlan: a dot, or a sum of dots with an optional further term, as one register-tiled Dot statement.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "schedule/context.h"

namespace hotloop {

struct DotPlan {
  Value result;                    // the dot's own result, or the add at the top of the sum
  std::vector<const Node*> terms;  // the dots, in order of summation
  std::optional<Value> init;       // what the accumulators start from
  std::int64_t parts = 1;          // equal ones of the last axis, that the result is read in
};

// The axes of a dot's operands by what it does along them.
struct DotShape {
  std::vector<int> lhs_batch, rhs_batch, lhs_free, rhs_free, lhs_contract, rhs_contract;
};
DotShape shape_of(const Node& dot);

// The plan whose top is `node` (a dot or an add), if there is one. `absorbable` says whether an operand may disappear into the sum:
// it is in the block and has no other use.
std::optional<DotPlan> plan_dot(const Node& node, const std::function<bool(Value)>& absorbable);

// Where the operands of a dot are read for its result at `index`: its products in order. The contracted axes are static.
struct DotProduct {
  std::vector<kernel::Affine> lhs, rhs;
};
std::vector<DotProduct> products_of(const Node& dot, const std::vector<kernel::Affine>& index);

// A sum of so many products may be an inner product, over lanes; a shorter one is a chain.
inline constexpr std::int64_t shortest_inner_product = 16;
// Whether rows are multiplied by weights that they share and that fill vectors, or nearly.
bool has_long_weights(const LoweringContext& context, const Node& dot);
// Whether a dot has a few products a row of the tile, so that by lanes it is an expression like any other.
bool is_short_dot(const LoweringContext& context, const Node& dot);

// Statements that compute the plan into `target`; with `accumulate`, added to what is there.
kernel::Block lower_dot(LoweringContext& context, const DotPlan& plan, const Storage& target, bool accumulate);

// Whether the right-hand side of the plan's dots should supply the rows: columns must be static and fill vectors.
bool rows_from_rhs(LoweringContext& context, const DotPlan& plan);

// Storage for a plan's result in which the statement writes contiguously.
Storage allocate_dot(LoweringContext& context, const DotPlan& plan, const std::string& name);

}  // namespace hotloop
