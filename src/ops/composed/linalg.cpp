// Elimination and substitution, for small matrices as a program of numbers, else as loops over columns (linalg_columns.h) or blocks of
// them (linalg_blocks.h), so that a program's length does not grow with its matrices for ever.
//
// Without loops every index is known: the numbers of a batch of systems stay in registers, a system a lane, where a loop has a gather
// by the pivot's place and an array that is read and written whole at each column.
#include "hotloop/linalg.h"

#include <functional>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/region.h"
#include "ops/composed/linalg_blocks.h"
#include "ops/composed/linalg_columns.h"
#include "ops/composed/linear_call.h"
#include "ops/rules/arguments.h"

namespace hotloop::linalg {
namespace {

// Up to so many unknowns, or columns of a right side: beyond, compiling takes longer than users wait (a stiff solver of eight
// unknowns 1.1 s in place of 0.5) for a gain that shrinks.
constexpr std::int64_t most_unrolled = 6;

bool is_short(const Value& a) { return a.shape()[0] > 0 && a.shape()[0] <= most_unrolled; }

using Rows = std::vector<std::vector<Value>>;

bool is_empty(const Value& x) { return x.shape().size() == 0; }

void require_square(const char* where, const Value& a) {
  ir::require_defined(where, {&a, 1});
  if (a.rank() != 2 || a.shape()[0] != a.shape()[1])
    throw UserError(where, "the matrix must be square, (n, n)", a.type().str(), "vmap() for a batch of matrices");
  if (!is_float(a.dtype()))
    throw UserError(where, "the elements must be floats", a.type().str(), "cast(a, DType::F32)");
}

void require_right_side(const char* where, const Value& a, const Value& b) {
  ir::require_defined(where, {&b, 1});
  if (b.rank() < 1 || b.rank() > 2 || b.shape()[0] != a.shape()[0] || b.dtype() != a.dtype())
    throw UserError(where, "the right side must be (n,) or (n, k), of the matrix's dtype",
                    a.type().str() + " and " + b.type().str(), "reshape() or cast() it");
}

// ---- numbers at known places ------------------------------------------------------------------------------------

std::vector<Value> parts_of(Value x) {
  std::vector<Value> parts;
  for (std::int64_t i = 0; i < x.shape()[0]; ++i) parts.push_back(take(x, 0, i));
  return parts;
}

Rows numbers_of(Value a) {
  Rows rows;
  for (const Value& row : parts_of(a)) rows.push_back(parts_of(row));
  return rows;
}

Value matrix_of(const Rows& rows) {
  std::vector<Value> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const auto n = static_cast<std::int64_t>(rows.size());
  return reshape(stack(flat, 0), {n, n});
}

void exchange_if(Value condition, Value& a, Value& b) {
  const Value was = a;
  a = select(condition, b, was);
  b = select(condition, was, b);
}

// Row k changes places with each row below that has a larger number in column k, so that it ends with the largest.
LU factor_numbers(Value a) {
  Rows lu = numbers_of(a);
  const std::size_t n = lu.size();
  std::vector<Value> rows;
  for (std::size_t i = 0; i < n; ++i) rows.push_back(i32(static_cast<std::int64_t>(i)));
  Value parity = constant(1, a.dtype());
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = k + 1; i < n; ++i) {
      const Value is_larger = greater(abs(lu[i][k]), abs(lu[k][k]));
      for (std::size_t j = 0; j < n; ++j) exchange_if(is_larger, lu[k][j], lu[i][j]);
      exchange_if(is_larger, rows[k], rows[i]);
      parity = select(is_larger, -parity, parity);
    }
    // Below a pivot of zero all is zero: nothing is to be eliminated.
    const Value pivot = select(equal(lu[k][k], zeros_like(lu[k][k])), ones_like(lu[k][k]), lu[k][k]);
    for (std::size_t i = k + 1; i < n; ++i) {
      lu[i][k] = lu[i][k] / pivot;
      for (std::size_t j = k + 1; j < n; ++j) lu[i][j] = lu[i][j] - lu[i][k] * lu[k][j];
    }
  }
  return {matrix_of(lu), stack(rows, 0), parity};
}

// Of a right side of (n,), or of rows that are taken as they are.
Value substitute_parts(const Rows& lu, const std::vector<Value>& rows, Value b) {
  const std::vector<Value> given = parts_of(b);
  const std::size_t n = lu.size();
  std::vector<Value> x;
  for (std::size_t i = 0; i < n; ++i) {
    Value value = given[0];
    for (std::size_t j = 1; j < n; ++j) {
      const Value is_row = equal(rows[i], i32(static_cast<std::int64_t>(j)));
      value = select(broadcast_to(is_row, value.shape()), given[j], value);
    }
    for (std::size_t j = 0; j < i; ++j) value = value - lu[i][j] * x[j];
    x.push_back(value);
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = n; j-- > i + 1;) x[i] = x[i] - lu[i][j] * x[j];
    x[i] = x[i] / lu[i][i];
  }
  return stack(x, 0);
}

Value substitute_numbers(const LU& factors, Value b) {
  const Rows lu = numbers_of(factors.lu);
  const std::vector<Value> rows = parts_of(factors.rows);
  if (b.rank() < 2 || b.shape()[1] > most_unrolled || b.shape()[1] == 0) return substitute_parts(lu, rows, b);
  std::vector<Value> columns;
  for (std::int64_t j = 0; j < b.shape()[1]; ++j) columns.push_back(substitute_parts(lu, rows, take(b, 1, j)));
  return stack(columns, 1);
}

Value cholesky_numbers(Value a) {
  Rows found = numbers_of(a);
  const std::size_t n = found.size();
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = 0; i < n; ++i) {
      if (i < j) {
        found[i][j] = zeros_like(found[i][j]);
        continue;
      }
      for (std::size_t k = 0; k < j; ++k) found[i][j] = found[i][j] - found[i][k] * found[j][k];
      found[i][j] = i == j ? sqrt(found[i][j]) : found[i][j] / found[j][j];
    }
  return matrix_of(found);
}

// ---- blocks -----------------------------------------------------------------------------------------------------

// fn(known..., b), linear in b (n,) or (n, k), and its transpose, both of b as a matrix.
using OfMatrix = std::function<Value(std::span<const Value> known, Value b, bool transposed)>;
Value linear_in(const OfMatrix& fn, std::vector<Value> known, Value b, bool transposed) {
  const std::size_t num_known = known.size();
  known.push_back(b.rank() == 1 ? expand_dims(b, 1) : b);
  const auto graph = [&](bool is_transposed) {
    return trace(
        [&](std::span<const Value> v) { return std::vector<Value>{fn(v.first(num_known), v.back(), is_transposed)}; },
        ir::types_of(known), "substitute");
  };
  const Value x = ir::linear_call(graph(transposed), graph(!transposed), known, num_known)[0];
  return reshape(x, b.shape());
}

// `Factors`: of columns or of blocks.
template <class Factors> Value solve_by(const Factors& factors, Value b) {
  const auto of = [](std::span<const Value> known, Value rhs, bool transposed) {
    return substitute(Factors{known[0], known[1], known[2]}, rhs, transposed);
  };
  return linear_in(of, {factors.lower, factors.upper, factors.rows}, b, false);
}

Value solve_plainly(Value a, Value b) {
  if (is_short(a)) return substitute_numbers(factor_numbers(a), b);
  return blocks::serve(a) ? solve_by(blocks::factorize(a), b) : solve_by(columns::factorize(a), b);
}

Value substitute_blocks(const LU& factors, Value b) {
  const auto of = [](std::span<const Value> known, Value rhs, bool transposed) {
    return blocks::substitute(LU{known[0], known[1]}, rhs, transposed);
  };
  return linear_in(of, {factors.lu, factors.rows}, b, false);
}

// Rules of derivatives begin here. A program cannot hold an endless tower of them: at its end what they are of is differentiated.
constexpr int most_orders = 2;

// x with u x = b, or u^T x = b, of u's upper triangle.
Value solve_upper(Value u, Value b, bool transposed, int order) {
  const std::vector<Value> operands = {u, b};
  const auto plain = [transposed](std::span<const Value> v) {
    const auto of = [](std::span<const Value> known, Value rhs, bool is_transposed) {
      const Value upper = upper_triangle(known[0]);
      return blocks::serve(upper) ? blocks::substitute_upper(upper, rhs, is_transposed)
                                  : columns::substitute_upper(upper, rhs, is_transposed);
    };
    return std::vector<Value>{linear_in(of, {v[0]}, v[1], transposed)};
  };
  if (order == 0) return plain(operands)[0];
  const auto rule = [transposed, order](std::span<const Value> v) {
    const auto again = [&](Value rhs) { return solve_upper(v[0], rhs, transposed, order - 1); };
    const Value x = again(v[1]), change = upper_triangle(v[2]);
    return std::vector<Value>{x, again(v[3] - matmul(transposed ? turned(change) : change, x))};
  };
  return call_with_rule(trace(plain, ir::types_of(operands), "solve_triangular"), operands, "solve_triangular",
                        rule)[0];
}

// With u^T u = a: u^-T da u^-1 = w + w^T with w = du u^-1 upper (Murray, Differentiation of the Cholesky decomposition, 2016).
Value cholesky_with_rule(Value a, int order) {
  const auto symmetric = [](Value x) {
    const std::int64_t n = x.shape()[0];
    return select(less(iota(DType::I32, {n, n}, 0), iota(DType::I32, {n, n}, 1)), turned(x), x);
  };
  const std::vector<Value> operands = {a};
  const auto plain = [&](std::span<const Value> v) {
    return std::vector<Value>{blocks::serve(v[0]) ? turned(blocks::cholesky(symmetric(v[0])))
                                                  : columns::cholesky(v[0])};
  };
  if (order == 0) return plain(operands)[0];
  const auto rule = [symmetric, order](std::span<const Value> v) {
    const Value l = cholesky_with_rule(v[0], order - 1), u = turned(l);
    const auto divided = [&](Value x) { return solve_upper(u, x, true, order - 1); };
    const Value both = divided(turned(divided(symmetric(v[1]))));
    const Value halved = select(on_diagonal(l.shape()[0]), both * 0.5, both);
    return std::vector<Value>{l, turned(matmul(upper_triangle(halved), u))};
  };
  return call_with_rule(trace(plain, ir::types_of(operands), "cholesky"), operands, "cholesky", rule)[0];
}

Value inverse(Value a, int order);

// What the determinant is the product of: 1 or -1, and U's diagonal.
std::pair<Value, Value> pivots(Value a) {
  if (is_short(a)) {
    const LU factors = factor_numbers(a);
    return {factors.parity, diagonal(factors.lu)};
  }
  const auto of = [](const auto& factors) {
    return std::pair(parity_of(factors.rows, factors.upper.dtype()), diagonal(factors.upper));
  };
  return blocks::serve(a) ? of(blocks::factorize(a)) : of(columns::factorize(a));
}

// The sign of the determinant and the logarithm of its size.
std::vector<Value> log_of_det(Value a, int order) {
  const std::vector<Value> operands = {a};
  const auto plain = [](std::span<const Value> v) {
    const auto [parity, numbers] = pivots(v[0]);
    return std::vector<Value>{parity * reduce_prod(sign(numbers), {0}), sum(log(abs(numbers)))};
  };
  if (order == 0) return plain(operands);
  const auto rule = [order](std::span<const Value> v) {
    std::vector<Value> results = log_of_det(v[0], order - 1);
    results.push_back(zeros_like(results[0]));
    results.push_back(sum(turned(inverse(v[0], order - 1)) * v[1]));
    return results;
  };
  return call_with_rule(trace(plain, ir::types_of(operands), "slogdet"), operands, "slogdet", rule);
}

// ---- cofactors: the derivative of the determinant ----------------------------------------------------------------
//
// Of a singular matrix they are no determinant times an inverse, and an elimination that meets a pivot of zero goes on with rows that it should have kept.
// So the first column without a pivot becomes the last one: the last pivot d alone may then be zero, if any cofactor is not. With
// P b = L U, U = [V u; 0 d], the adjugate of b is det(P V) [d V^-1, -V^-1 u; 0, 1] L^-1 P, of which no quotient has d in it.

// The place of the first pivot of zero, or the last place.
Value place_without_pivot(Value numbers) {
  const std::int64_t n = numbers.shape()[0];
  return reduce_min(where(equal(numbers, like(numbers, 0)), numbered(n), i32(n - 1)), {0});
}
// 1 or -1: the exchanges by which column k of n becomes the last.
Value parity_of_move(Value k, std::int64_t n, DType dtype) {
  return 1.0 - 2.0 * cast(rem(i32(n - 1) - k, i32(2)), dtype);
}

Value few_cofactors(Value a) {
  const Rows m = numbers_of(a);
  const std::size_t n = m.size();
  if (n == 1) return ones_like(a);
  if (n == 2) return matrix_of({{m[1][1], -m[1][0]}, {-m[0][1], m[0][0]}});
  Rows found(n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const std::size_t r = (i + 1) % n, s = (i + 2) % n, p = (j + 1) % n, q = (j + 2) % n;
      found[i].push_back(m[r][p] * m[s][q] - m[r][q] * m[s][p]);
    }
  return matrix_of(found);
}

Value cofactors_of_numbers(Value a) {
  Rows b = numbers_of(a);
  const std::size_t n = b.size();
  const Value k = place_without_pivot(diagonal(factor_numbers(a).lu));
  std::vector<Value> is_before, is_it;  // k, of each column
  for (std::size_t j = 0; j < n; ++j) {
    const Value place = i32(static_cast<std::int64_t>(j));
    is_before.push_back(less(place, k));
    is_it.push_back(equal(place, k));
  }
  for (auto& row : b) {
    std::vector<Value> moved;
    Value last = row[n - 1];
    for (std::size_t j = 0; j + 1 < n; ++j) {
      moved.push_back(select(is_before[j], row[j], row[j + 1]));
      last = select(is_it[j], row[j], last);
    }
    moved.push_back(last);
    row = moved;
  }
  const LU factors = factor_numbers(matrix_of(b));
  const Rows lu = numbers_of(factors.lu);
  const std::vector<Value> rows = parts_of(factors.rows);
  const Value d = lu[n - 1][n - 1];
  Value scale = factors.parity * parity_of_move(k, static_cast<std::int64_t>(n), a.dtype());
  for (std::size_t i = 0; i + 1 < n; ++i) scale = scale * lu[i][i];
  Rows found;  // row by row, of b: what the adjugate makes of each unit vector
  for (std::size_t unit = 0; unit < n; ++unit) {
    std::vector<Value> x;
    for (std::size_t i = 0; i < n; ++i) {
      Value value = cast(equal(rows[i], i32(static_cast<std::int64_t>(unit))), a.dtype());
      for (std::size_t j = 0; j < i; ++j) value = value - lu[i][j] * x[j];
      x.push_back(value);
    }
    for (std::size_t i = 0; i + 1 < n; ++i) x[i] = d * x[i];
    for (std::size_t i = n - 1; i-- > 0;) {
      for (std::size_t j = n; j-- > i + 1;) x[i] = x[i] - lu[i][j] * x[j];
      x[i] = x[i] / select(equal(lu[i][i], zeros_like(d)), ones_like(d), lu[i][i]);
    }
    std::vector<Value> row;
    for (std::size_t j = 0; j < n; ++j) {
      const Value after = j == 0 ? x[n - 1] : select(is_it[j], x[n - 1], x[j - 1]);
      row.push_back(scale * select(is_before[j], x[j], after));
    }
    found.push_back(row);
  }
  return matrix_of(found);
}

Value cofactors_of_many(Value a) {
  const std::int64_t n = a.shape()[0];
  const Value index = numbered(n), is_last = equal(index, i32(n - 1));
  const Value k = place_without_pivot(pivots(a).second);
  const Value b = gather(a, where(less(index, k), index, where(is_last, k, index + i32(1))), 1);
  const LU factors = blocks::serve(b) ? blocks::packed_factors(b) : columns::packed_factors(b);
  const Value numbers = diagonal(factors.lu), one = like(a, 1);
  const Value d = take(numbers, 0, n - 1);
  const Value unit = where(on_diagonal(n), one, upper_triangle(turned(factors.lu)));  // L's transpose
  const Value kept = where(bit_or(is_last, equal(numbers, like(numbers, 0))), like(numbers, 1), numbers);
  const Value upper = where(on_diagonal(n), as_row(kept), upper_triangle(factors.lu));
  const Value exchanged = cast(equal(as_column(factors.rows), as_row(index)), a.dtype());
  const Value y = solve_upper(unit, exchanged, true, most_orders);
  const Value x = solve_upper(upper, where(as_column(is_last), y, d * y), false, most_orders);
  const Value scale =
      factors.parity * parity_of_move(k, n, a.dtype()) * reduce_prod(where(is_last, like(numbers, 1), numbers), {0});
  const Value back = where(less(index, k), index, where(equal(index, k), i32(n - 1), index - i32(1)));
  return scale * gather(turned(x), back, 1);
}

// The derivative of each element of a by the determinant. Those of blocks by a formula, which has no value where a is singular.
Value cofactors(Value a, int order) {
  if (a.shape()[0] <= 3) return few_cofactors(a);
  if (is_short(a)) return cofactors_of_numbers(a);
  if (!blocks::serve(a) || order == 0) return cofactors_of_many(a);
  const std::vector<Value> operands = {a};
  const auto plain = [](std::span<const Value> v) { return std::vector<Value>{cofactors_of_many(v[0])}; };
  const auto rule = [order](std::span<const Value> v) {
    const Value value = cofactors(v[0], order - 1), turned_inverse = turned(inverse(v[0], order - 1));
    return std::vector<Value>{value,
                              sum(value * v[1]) * turned_inverse - matmul(turned_inverse, matmul(turned(v[1]), value))};
  };
  return call_with_rule(trace(plain, ir::types_of(operands), "cofactors"), operands, "cofactors", rule)[0];
}

Value det_with_rule(Value a, int order) {
  const std::vector<Value> operands = {a};
  const auto plain = [](std::span<const Value> v) {
    const auto [parity, numbers] = pivots(v[0]);
    return std::vector<Value>{parity * reduce_prod(numbers, {0})};
  };
  if (order == 0) return plain(operands)[0];
  const auto rule = [order](std::span<const Value> v) {
    return std::vector<Value>{det_with_rule(v[0], order - 1), sum(cofactors(v[0], order - 1) * v[1])};
  };
  return call_with_rule(trace(plain, ir::types_of(operands), "det"), operands, "det", rule)[0];
}

Value solve_with_rule(Value a, Value b, int order) {
  const std::vector<Value> operands = {a, b};
  const std::vector<ValueType> types = {a.type(), b.type()};
  const auto plain = [](std::span<const Value> v) { return std::vector<Value>{solve_plainly(v[0], v[1])}; };
  if (order == 0) return plain(operands)[0];
  const auto rule = [order](std::span<const Value> v) {
    const Value x = solve_with_rule(v[0], v[1], order - 1);
    return std::vector<Value>{x, solve_with_rule(v[0], v[3] - matmul(v[2], x), order - 1)};
  };
  return call_with_rule(trace(plain, types, "solve"), operands, "solve", rule)[0];
}

Value inverse(Value a, int order) { return solve_with_rule(a, cast(on_diagonal(a.shape()[0]), a.dtype()), order); }

}  // namespace

LU lu_factor(Value a) {
  require_square("lu_factor", a);
  if (is_empty(a)) return {a, iota(DType::I32, {0}, 0), constant(1, a.dtype())};
  return is_short(a) ? factor_numbers(a) : blocks::serve(a) ? blocks::packed_factors(a) : columns::packed_factors(a);
}

Value lu_solve(const LU& factors, Value b) {
  require_square("lu_solve", factors.lu);
  require_right_side("lu_solve", factors.lu, b);
  if (is_empty(b)) return b;
  if (is_short(factors.lu)) return substitute_numbers(factors, b);
  return blocks::serve(factors.lu) ? substitute_blocks(factors, b) : columns::substitute(factors, b);
}

Value solve(Value a, Value b) {
  require_square("solve", a);
  require_right_side("solve", a, b);
  if (is_empty(b)) return b;
  if (!blocks::serve(a)) return solve_with_rule(a, b, most_orders);
  const Value right = b.rank() == 1 ? expand_dims(b, 1) : b;
  const Value x = solve_with_rule(blocks::padded(a), blocks::padded_right_side(right), most_orders);
  return reshape(blocks::beginning(x, right), b.shape());
}

Value solve_triangular(Value a, Value b, bool upper) {
  require_square("solve_triangular", a);
  require_right_side("solve_triangular", a, b);
  if (is_empty(b)) return b;
  return solve_upper(upper ? a : turned(a), b, !upper, most_orders);
}

Value det(Value a) {
  require_square("det", a);
  if (is_empty(a)) return constant(1, a.dtype());
  return det_with_rule(blocks::serve(a) ? blocks::padded(a) : a, most_orders);
}

std::pair<Value, Value> slogdet(Value a) {
  require_square("slogdet", a);
  if (is_empty(a)) return {constant(1, a.dtype()), constant(0, a.dtype())};
  const auto results = blocks::serve(a) ? log_of_det(blocks::padded(a), most_orders) : log_of_det(a, 0);
  return {results[0], results[1]};
}

Value cholesky(Value a) {
  require_square("cholesky", a);
  if (is_empty(a)) return a;
  if (is_short(a)) return cholesky_numbers(a);
  return blocks::serve(a) ? blocks::beginning(cholesky_with_rule(blocks::padded(a), most_orders), a)
                          : cholesky_with_rule(a, most_orders);
}

// As L Q^-1 and Q L^T, Q the diagonal of L, the factors are those of an elimination.
Value cholesky_solve(Value l, Value b) {
  require_square("cholesky_solve", l);
  require_right_side("cholesky_solve", l, b);
  if (is_empty(b)) return b;
  if (!is_short(l)) {
    const auto substituted = [&](Value x, bool transposed) {
      return solve_upper(turned(l), x, transposed, most_orders);
    };
    return substituted(substituted(b, true), false);
  }
  const std::int64_t n = l.shape()[0];
  const Value q = diagonal(l), rows = iota(DType::I32, {n, n}, 0), columns = iota(DType::I32, {n, n}, 1);
  const Value unit = l / expand_dims(q, 0), upper = transpose(l, {1, 0}) * expand_dims(q, 1);
  return lu_solve({select(greater(rows, columns), unit, upper), iota(DType::I32, {n}, 0)}, b);
}

Value diagonal(Value a) {
  require_square("diagonal", a);
  // In the flattened matrix its numbers stand n + 1 apart.
  const std::int64_t n = a.shape()[0];
  if (n == 0) return reshape(a, {0});
  return slice(reshape(a, {n * n}), {0}, {n * n}, {n + 1});
}

}  // namespace hotloop::linalg
