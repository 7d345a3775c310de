// Operations on values: the primitives (one node each) and the compositions written with them.
//
// Names follow the Python array API standard where it has one. Operands of two-operand functions broadcast as in
// NumPy; dtypes must agree (cast() converts; C++ numbers take the dtype of the other operand, which must have them: see like()).
// Every function throws UserError, naming all shapes, when its operands do not fit.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop {

// ---- primitives: creation -------------------------------------------------------------------------------------
Value constant(const Array& array);                                               // constant{value}
Value constant(double value, DType dtype = DType::F32, const Shape& shape = {});  // a number of the dtype, as like()
Value iota(DType dtype, const Shape& shape, int axis);  // iota{dtype, shape, axis}: index along axis
// 32 random bits for each element of `shape`: a pure function of the key (u32[2]) and the element's flat index, less than 2^32
// (Philox2x32-10, Salmon et al. 2011; element i is word i % 2 at counter (i / 2, key[1]) under key[0]). Of keys[..., 2] each draws a `shape`
// of its own: [..., shape]. random_bits{shape}
Value random_bits(Value key, const Shape& shape);
// Number of elements along `axis` of x as an f32 scalar (f64 when x is): a run-time number when the axis is the batch axis of
// an executable with a variable number of rows, else folded to a constant. extent{axis}
Value extent(Value x, int axis);

// ---- primitives: elementwise ----------------------------------------------------------------------------------
Value neg(Value x);
Value abs(Value x);
Value sign(Value x);
Value floor(Value x);
Value ceil(Value x);
Value rint(Value x);  // to nearest, ties to even
Value sqrt(Value x);
Value exp(Value x);
Value expm1(Value x);
Value log(Value x);
Value log1p(Value x);
Value sin(Value x);
Value cos(Value x);
Value tanh(Value x);
Value sigmoid(Value x);
Value erf(Value x);
Value erfinv(Value x);             // y with erf(y) = x: infinite at 1 and -1, NaN beyond
Value logical_not(Value x);        // bool; bitwise on integers
Value cast(Value x, DType dtype);  // cast{dtype}
Value bitcast(
    Value x, DType dtype);  // bitcast{dtype}: the same bits, between numbers of one size; of a NaN any that are a NaN's
Value stop_gradient(Value x);  // identity with zero derivative

Value add(Value a, Value b);
Value sub(Value a, Value b);
Value mul(Value a, Value b);
Value div(Value a, Value b);      // integers: toward zero; division by zero gives 0
Value rem(Value a, Value b);      // sign of a, as C's fmod and %; integers: n rem 0 = n
Value pow(Value a, Value b);      // x^0 = 1 and 1^x = 1 even for NaN, as in C
Value maximum(Value a, Value b);  // op "max"; NaN propagates
Value minimum(Value a, Value b);  // op "min"
Value bit_and(Value a, Value b);  // ops "and", "or", "xor": integers and bool
Value bit_or(Value a, Value b);
Value bit_xor(Value a, Value b);
Value shift_left(Value a, Value b);   // op "shl"; counts are taken modulo the width
Value shift_right(Value a, Value b);  // op "shr"
Value equal(Value a, Value b);        // ops "eq" "ne" "lt" "le" "gt" "ge": bool
Value not_equal(Value a, Value b);
Value less(Value a, Value b);
Value less_equal(Value a, Value b);
Value greater(Value a, Value b);
Value greater_equal(Value a, Value b);
Value select(Value condition, Value a, Value b);  // condition ? a : b, element by element; a and b never mix

// ---- primitives: movement -------------------------------------------------------------------------------------
Value reshape(Value x, const Shape& shape);  // reshape{shape}
Value transpose(Value x,
                const std::vector<std::int64_t>& permutation);  // transpose{permutation}: out axis i is in axis p[i]
// The axes of x land at the axes `axes` (increasing) of `shape`; extents agree, the other axes are repeats.
Value broadcast(Value x, const Shape& shape, const std::vector<std::int64_t>& axes);  // broadcast{shape, axes}
Value broadcast_to(Value x, const Shape& shape);  // NumPy's rule (trailing axes, extent 1 repeats)
Value slice(Value x, const std::vector<std::int64_t>& start, const std::vector<std::int64_t>& stop,
            const std::vector<std::int64_t>& step = {});  // slice{start, stop, step}, step > 0
Value pad(Value x, Value value, const std::vector<std::int64_t>& low, const std::vector<std::int64_t>& high,
          const std::vector<std::int64_t>& interior = {});      // pad{low, high, interior}; operand 1 scalar; >= 0
Value concat(std::span<const Value> parts, int axis);           // concat{axis}
Value reverse(Value x, const std::vector<std::int64_t>& axes);  // reverse{axes}
// Strided windows: axis `axis` of extent n becomes two axes (count, size) with element [w, k] = x[w*stride + k*dilation].
Value windows(Value x, int axis, std::int64_t size, std::int64_t stride = 1, std::int64_t dilation = 1);

// ---- primitives: indirect -------------------------------------------------------------------------------------
// out[i..., rest...] = x[index[i...], rest...] along `axis` (NumPy take); indices are clamped into range. gather{axis, lanes}
// With `lanes`, so many leading axes of x and of the indices are the same axes: out[l..., i..., rest...] = x[l..., index[l..., i...], rest...].
Value gather(Value x, Value indices, int axis, int lanes = 0);
// x with updates[i...] added at indices[i...] along `axis`, the adjoint of gather; out of range is dropped. scatter_add{axis, lanes}
Value scatter_add(Value x, Value indices, Value updates, int axis, int lanes = 0);
// Slice of static `sizes` at run-time `starts` (one i32 scalar an axis), clamped so that it fits. dynamic_slice{sizes}
// Starts may have some of x's leading axes, each element of which starts elsewhere; these axes then have no start.
Value dynamic_slice(Value x, std::span<const Value> starts, const std::vector<std::int64_t>& sizes);
Value dynamic_update(Value x, Value update, std::span<const Value> starts);  // operands x, update, starts...

// ---- primitives: reductions and contraction -------------------------------------------------------------------
// reduce_sum, reduce_max, reduce_min, reduce_prod {axes}: the axes disappear.
Value reduce_sum(Value x, const std::vector<std::int64_t>& axes);
Value reduce_max(Value x, const std::vector<std::int64_t>& axes);
Value reduce_min(Value x, const std::vector<std::int64_t>& axes);
Value reduce_prod(Value x, const std::vector<std::int64_t>& axes);
Value argmax(Value x, int axis);  // argmax{axis} -> i32, the first of equals; a NaN counts as the largest
Value argmin(Value x, int axis);  // argmin{axis} -> i32, the first of equals; a NaN counts as the smallest
// General contraction: out[batch..., lhs free..., rhs free...] = sum over the contracted axes of lhs * rhs.
// dot{lhs_contract, rhs_contract, lhs_batch, rhs_batch} of floats; of integers a product and a reduce_sum.
struct DotAxes {
  std::vector<std::int64_t> lhs_contract, rhs_contract, lhs_batch, rhs_batch;
};
Value dot(Value lhs, Value rhs, const DotAxes& axes);

// ---- primitives: control --------------------------------------------------------------------------------------
// The one control-flow primitive. With t running over 0..trip-1 (trip-1..0 if reverse):
//   carry, y_t = body(carry, xs[t]..., consts...);   ys[t] = y_t
// `until` (optional) is tested before each iteration on (carry..., consts...) and ends the loop when true. A
// predicate of rank r > 0 is per lane: the first r axes of every carry are the lanes, a finished lane's carry is frozen, and
// the loop ends when all lanes have; ys are [length, lanes..., ...]. ys at iterations that did not run are zero.
// Node: operands carry..., xs..., consts..., [trip i32 scalar]; attrs num_carry, num_xs, num_consts, length, reverse,
// has_trip, residuals (see LoopSpec); regions {body} or {body, until}. Results: final carry..., ys...,
// count (i32, shape of the predicate, number of iterations run).
struct LoopSpec {
  std::vector<Value> carry, xs, consts;
  Value trip;  // undefined: length
  std::int64_t length = 0;
  bool reverse = false;
  // What backward finds of an iteration: "save" keeps values of the body, "recompute" its carry alone, "save_if_small" keeps them where those
  // of `length` iterations take at most 32 MiB. "": save without until, recompute with it.
  std::string residuals = "";
  std::shared_ptr<const Graph> body, until;
  std::vector<std::int64_t> laned = {}, mask = {};  // for transforms: where lanes are, see LoopView in src/ir/rewrite.h
  int generation = 0;                               // of the node
};
struct LoopResult {
  std::vector<Value> carry, ys;
  Value count;
};
LoopResult loop(const LoopSpec& spec);
// A region with rules of its own. call{name, jvp}; regions {body}: the jvp rule takes (primals..., tangents...) and gives (outputs...,
// output tangents...). Attr "remat": backward recomputes the body instead of saving residuals.
std::vector<Value> call(std::shared_ptr<const Graph> body, std::span<const Value> operands, const std::string& name,
                        std::shared_ptr<const Graph> jvp_rule = nullptr, bool remat = false);
// The same with a rule that is traced when a derivative is taken, see LazyGraph.
std::vector<Value> call_with_rule(std::shared_ptr<const Graph> body, std::span<const Value> operands,
                                  const std::string& name, TracedFunction jvp_rule, bool remat = false);

// ---- compositions ---------------------------------------------------------------------------------------------
Value zeros_like(Value x);
Value ones_like(Value x);
Value square(Value x);
Value reciprocal(Value x);
Value rsqrt(Value x);
Value relu(Value x);
Value softplus(Value x);
Value gelu(Value x);
// log |Gamma(x)|: infinite at 0, at the negative integers and at both infinities. Its derivative is digamma(x).
Value lgamma(Value x);
// The derivative of lgamma(x): infinite at 0, NaN at the negative integers. Errors of both, for x > -20: in f64 8 units in the last place, or 8e-15 where the result is
// less than 1; in f32 one unit (they are computed in f64).
Value digamma(Value x);
// 1 - erf(x), of which large x leave digits, down to the smallest number. Errors of erfc are below 5 units in the last place, those of ndtr and log_ndtr below 6.
Value erfc(Value x);
// The normal distribution function, erfc(-x / sqrt(2)) / 2, and its logarithm, which is finite where the function itself is too small to be a number.
Value ndtr(Value x);
Value log_ndtr(Value x);
// The inverse of ndtr: infinite at 0 and 1, NaN beyond. Errors: in f64 4 units in the last place, in the tails too, in f32 below 3, those of its derivative below 4.
Value ndtri(Value p);
Value clip(Value x, double low, double high);
// Of vectors x (n) and w (k): out[i] = sum over j of x[i + j] w[j], for the n - k + 1 places where all of w lies within x. A convolution is that of x padded
// with k - 1 zeros at each end and w reversed. Its gradients are sums of the same kind.
Value correlate(Value x, Value w);
Value mean(Value x, const std::vector<std::int64_t>& axes);      // divides by extent(): right for a partial batch
Value variance(Value x, const std::vector<std::int64_t>& axes);  // population variance (divides by n)
Value logsumexp(Value x, int axis);
Value softmax(Value x, int axis);
Value matmul(Value a, Value b);  // NumPy's rule for rank 1, 2 and batched operands
Value expand_dims(Value x, int axis);
Value squeeze(Value x, int axis);
Value stack(std::span<const Value> parts, int axis);
Value take(Value x, int axis, std::int64_t index);  // x[..., index, ...], negative counts from the end
Value narrow(Value x, int axis, std::int64_t start, std::int64_t size);
std::vector<Value> split(Value x, int num_parts, int axis);
inline Value sum(Value x, const std::vector<std::int64_t>& axes) { return reduce_sum(x, axes); }
Value sum(Value x);  // over all axes
Value mean(Value x);

// The same with the values written out: concat({x, h}, 1).
inline Value concat(std::initializer_list<Value> parts, int axis) {
  return concat(std::span(parts.begin(), parts.size()), axis);
}
inline Value stack(std::initializer_list<Value> parts, int axis) {
  return stack(std::span(parts.begin(), parts.size()), axis);
}
inline Value dynamic_slice(Value x, std::initializer_list<Value> starts, const std::vector<std::int64_t>& sizes) {
  return dynamic_slice(x, std::span(starts.begin(), starts.size()), sizes);
}
inline Value dynamic_update(Value x, Value update, std::initializer_list<Value> starts) {
  return dynamic_update(x, update, std::span(starts.begin(), starts.size()));
}

// carry, ys = scan(body, init, xs): body(carry, x_t) -> (carry, y_t), called once, on traced values; it may use values
// of the enclosing graph. xs are scanned along axis 0; `length` is needed when there are none.
using ScanBody = std::function<std::pair<std::vector<Value>, std::vector<Value>>(std::span<const Value> carry,
                                                                                 std::span<const Value> xs)>;
struct ScanOptions {
  std::int64_t length = -1;
  bool reverse = false;
  std::string residuals = "";
};
std::pair<std::vector<Value>, std::vector<Value>> scan(const ScanBody& body, std::span<const Value> init,
                                                       std::span<const Value> xs, const ScanOptions& options = {});
// Runs body while cond is true, at most max_steps times; returns the carry.
using Predicate = std::function<Value(std::span<const Value>)>;
using CarryBody = std::function<std::vector<Value>(std::span<const Value>)>;
std::vector<Value> while_loop(const Predicate& cond, const CarryBody& body, std::span<const Value> init,
                              std::int64_t max_steps);
// Both branches are traced; only the chosen one runs (each is a loop of length 1).
std::vector<Value> cond(Value predicate, const CarryBody& if_true, const CarryBody& if_false,
                        std::span<const Value> operands);
// fn whose backward pass recomputes instead of saving.
TracedFunction checkpoint(const TracedFunction& fn);

// ---- operators ------------------------------------------------------------------------------------------------
inline Value operator-(Value x) { return neg(x); }
inline Value operator+(Value a, Value b) { return add(a, b); }
inline Value operator-(Value a, Value b) { return sub(a, b); }
inline Value operator*(Value a, Value b) { return mul(a, b); }
inline Value operator/(Value a, Value b) { return div(a, b); }
// A scalar constant of x's dtype. UserError if that has no such number: a fraction, NaN or 1e30 among integers.
Value like(Value x, double value);
namespace detail {
Value like_integer(Value x, std::int64_t value);
Value like_integer(Value x, std::uint64_t value);
}  // namespace detail
// The same of integers, which a double would round beyond 2^53.
template <std::integral T> Value like(Value x, T value) {
  if constexpr (std::signed_integral<T>)
    return detail::like_integer(x, static_cast<std::int64_t>(value));
  else
    return detail::like_integer(x, static_cast<std::uint64_t>(value));
}
inline Value operator+(Value a, double b) { return add(a, like(a, b)); }
inline Value operator+(double a, Value b) { return add(like(b, a), b); }
inline Value operator-(Value a, double b) { return sub(a, like(a, b)); }
inline Value operator-(double a, Value b) { return sub(like(b, a), b); }
inline Value operator*(Value a, double b) { return mul(a, like(a, b)); }
inline Value operator*(double a, Value b) { return mul(like(b, a), b); }
inline Value operator/(Value a, double b) { return div(a, like(a, b)); }
inline Value operator/(double a, Value b) { return div(like(b, a), b); }
// They make another value, as all operations do: copies of `a` keep the old one.
inline Value& operator+=(Value& a, Value b) { return a = a + b; }
inline Value& operator-=(Value& a, Value b) { return a = a - b; }
inline Value& operator*=(Value& a, Value b) { return a = a * b; }
inline Value& operator/=(Value& a, Value b) { return a = a / b; }
inline Value& operator+=(Value& a, double b) { return a = a + b; }
inline Value& operator-=(Value& a, double b) { return a = a - b; }
inline Value& operator*=(Value& a, double b) { return a = a * b; }
inline Value& operator/=(Value& a, double b) { return a = a / b; }

// Functions of a value and a number, as the operators.
inline Value pow(Value a, double b) { return pow(a, like(a, b)); }
inline Value pow(double a, Value b) { return pow(like(b, a), b); }
inline Value maximum(Value a, double b) { return maximum(a, like(a, b)); }
inline Value maximum(double a, Value b) { return maximum(like(b, a), b); }
inline Value minimum(Value a, double b) { return minimum(a, like(a, b)); }
inline Value minimum(double a, Value b) { return minimum(like(b, a), b); }
inline Value equal(Value a, double b) { return equal(a, like(a, b)); }
inline Value equal(double a, Value b) { return equal(like(b, a), b); }
inline Value not_equal(Value a, double b) { return not_equal(a, like(a, b)); }
inline Value not_equal(double a, Value b) { return not_equal(like(b, a), b); }
inline Value less(Value a, double b) { return less(a, like(a, b)); }
inline Value less(double a, Value b) { return less(like(b, a), b); }
inline Value less_equal(Value a, double b) { return less_equal(a, like(a, b)); }
inline Value less_equal(double a, Value b) { return less_equal(like(b, a), b); }
inline Value greater(Value a, double b) { return greater(a, like(a, b)); }
inline Value greater(double a, Value b) { return greater(like(b, a), b); }
inline Value greater_equal(Value a, double b) { return greater_equal(a, like(a, b)); }
inline Value greater_equal(double a, Value b) { return greater_equal(like(b, a), b); }

// The operators and functions above of integers, exact among those of a value.
template <std::integral T> Value operator+(Value a, T b) { return add(a, like(a, b)); }
template <std::integral T> Value operator+(T a, Value b) { return add(like(b, a), b); }
template <std::integral T> Value operator-(Value a, T b) { return sub(a, like(a, b)); }
template <std::integral T> Value operator-(T a, Value b) { return sub(like(b, a), b); }
template <std::integral T> Value operator*(Value a, T b) { return mul(a, like(a, b)); }
template <std::integral T> Value operator*(T a, Value b) { return mul(like(b, a), b); }
template <std::integral T> Value operator/(Value a, T b) { return div(a, like(a, b)); }
template <std::integral T> Value operator/(T a, Value b) { return div(like(b, a), b); }
template <std::integral T> Value& operator+=(Value& a, T b) { return a = a + b; }
template <std::integral T> Value& operator-=(Value& a, T b) { return a = a - b; }
template <std::integral T> Value& operator*=(Value& a, T b) { return a = a * b; }
template <std::integral T> Value& operator/=(Value& a, T b) { return a = a / b; }
template <std::integral T> Value pow(Value a, T b) { return pow(a, like(a, b)); }
template <std::integral T> Value pow(T a, Value b) { return pow(like(b, a), b); }
template <std::integral T> Value maximum(Value a, T b) { return maximum(a, like(a, b)); }
template <std::integral T> Value maximum(T a, Value b) { return maximum(like(b, a), b); }
template <std::integral T> Value minimum(Value a, T b) { return minimum(a, like(a, b)); }
template <std::integral T> Value minimum(T a, Value b) { return minimum(like(b, a), b); }
template <std::integral T> Value equal(Value a, T b) { return equal(a, like(a, b)); }
template <std::integral T> Value equal(T a, Value b) { return equal(like(b, a), b); }
template <std::integral T> Value not_equal(Value a, T b) { return not_equal(a, like(a, b)); }
template <std::integral T> Value not_equal(T a, Value b) { return not_equal(like(b, a), b); }
template <std::integral T> Value less(Value a, T b) { return less(a, like(a, b)); }
template <std::integral T> Value less(T a, Value b) { return less(like(b, a), b); }
template <std::integral T> Value less_equal(Value a, T b) { return less_equal(a, like(a, b)); }
template <std::integral T> Value less_equal(T a, Value b) { return less_equal(like(b, a), b); }
template <std::integral T> Value greater(Value a, T b) { return greater(a, like(a, b)); }
template <std::integral T> Value greater(T a, Value b) { return greater(like(b, a), b); }
template <std::integral T> Value greater_equal(Value a, T b) { return greater_equal(a, like(a, b)); }
template <std::integral T> Value greater_equal(T a, Value b) { return greater_equal(like(b, a), b); }

}  // namespace hotloop
