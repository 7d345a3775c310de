#include "passes/input_products.h"

#include "ir/op_def.h"
#include "passes/builder.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

// A sum may read one value many times: what is looked through grows twofold with each addition.
constexpr int most_terms = 8;

// A product, a view of one, or a sum with one among its terms.
bool holds_product(Value v, int depth = 0) {
  v = without_views(v);
  if (is_kind(v, OpKind::Dot)) return true;
  if (!is_scalar_op(v, ir::ScalarOp::Add) || depth == most_terms) return false;
  return holds_product(v.node->operands[0], depth + 1) || holds_product(v.node->operands[1], depth + 1);
}

}  // namespace

Value without_views(Value v) {
  while (is_kind(v, OpKind::Slice) || is_kind(v, OpKind::Reshape) || is_kind(v, OpKind::Transpose))
    v = v.node->operands[0];
  return v;
}

bool is_product(Value v) {
  const Value seen = without_views(v);
  return is_kind(seen, OpKind::Dot) || (seen != v && holds_product(seen));
}

int InputProducts::side(const Node& dot) const {
  if (dot.op->kind != OpKind::Dot || !dot.attrs.integers("lhs_batch").empty()) return -1;
  for (int side = 0; side < 2; ++side)
    if (loop_.xs_at(dot.operands[static_cast<std::size_t>(side)]) >= 0 &&
        is_invariant(dot.operands[static_cast<std::size_t>(1 - side)]))
      return side;
  return -1;
}

bool InputProducts::is_computed(Value v) const {
  const int at = loop_.xs_at(v);
  return at >= 0 && holds_product(loop_.xs(at));
}

bool InputProducts::is_part(Value v, int depth) const {
  v = without_views(v);
  if (side(*v.node) >= 0 || is_computed(v)) return true;
  if (!is_scalar_op(v, ir::ScalarOp::Add) || is_invariant(v) || depth == most_terms) return false;
  const Value a = v.node->operands[0], b = v.node->operands[1];
  return is_part(a, depth + 1) ? is_invariant(b) || is_part(b, depth + 1) : is_invariant(a) && is_part(b, depth + 1);
}

}  // namespace hotloop::passes
