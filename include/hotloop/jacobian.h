// Derivatives with many directions: dense Jacobians and Hessians, products with curvature matrices, per-sample gradients, and
// Jacobians that know their structure. All are functions of graphs: they compose with jit, vmap, grad and loops.
//
// Derivatives are taken of f32 and f64 values. An integer among the inputs named, or among the outputs, is a UserError; other
// integer inputs are constants. Where a function has a kink the derivative is the one its op documents (relu: 0 at 0; max: half
// each at a tie). Non-finite values travel as they do in jvp. An empty input or output gives an empty derivative.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotloop/transforms.h"

namespace hotloop {

// ---- many directions at once ----------------------------------------------------------------------------------
// As jvp, along K directions: tangents[i] is (K, primals[i].shape) or undefined, output tangents are (K, output shape), undefined
// for outputs that are not floats. What does not depend on the direction is computed once.
std::pair<std::vector<Value>, std::vector<Value>> jvp_many(const Function& fn, std::span<const Value> primals,
                                                           std::span<const Value> tangents);
// As vjp; the pullback takes cotangents (K, output shape) and gives (K, primal shape).
std::pair<std::vector<Value>, Function> vjp_many(const Function& fn, std::span<const Value> primals);

// ---- dense ----------------------------------------------------------------------------------------------------
// d output / d input for each output and each of argnums, output by output: arrays of shape y.shape + x.shape. jacfwd takes
// one direction an element of x, jacrev one an element of y; jacobian() below chooses, and uses zeros.
Function jacfwd(const Function& fn, std::vector<int> argnums = {0});
Function jacrev(const Function& fn, std::vector<int> argnums = {0});
// Second derivatives of the first output, a scalar, for each pair of argnums, row by row: shape x_i.shape + x_j.shape.
// Forward over reverse.
Function hessian(const Function& fn, std::vector<int> argnums = {0});

// ---- products with curvature ----------------------------------------------------------------------------------
// H v of fn's first output, a scalar: for each primal the product's part, undefined where the primal is not a float. vectors are as
// the primals (undefined = zero). Forward over reverse: about the cost of two gradients (Pearlmutter 1994).
std::vector<Value> hvp(const Function& fn, std::span<const Value> primals, std::span<const Value> vectors);
// J^T H J v, where J is the Jacobian of model (primals -> outputs) and H the Hessian of loss (outputs -> scalar) there: positive
// semi-definite when loss is convex (Schraudolph 2002). With the negative log-likelihood of an exponential family in its natural
// parameters as loss (squared error, softmax or sigmoid cross-entropy) this is the Fisher matrix of the model.
std::vector<Value> gauss_newton_vp(const Function& model, const Function& loss, std::span<const Value> primals,
                                   std::span<const Value> vectors);
// Product with the empirical Fisher matrix (1/N) sum_n g_n g_n^T, g_n the gradient of element n of fn's first output, the N
// per-sample losses; no gradient is formed.
std::vector<Value> fisher_vp(const Function& fn, std::span<const Value> primals, std::span<const Value> vectors);

// The gradient of fn's first output, a scalar for one sample, for each of N samples: arrays (N, x.shape) for each of argnums.
// in_axes is as in vmap: the axis of an input along which its samples are, -1 for what they share, as parameters.
Function per_sample_grad(const Function& fn, std::vector<int> argnums, std::vector<int> in_axes);
// sum_i d^2 y / dx_i^2 of fn's first output, a scalar, with respect to input `argnum`: a scalar; vmap it for many points.
// Forward over reverse.
Function laplacian(const Function& fn, int argnum = 0);

// ---- online -----------------------------------------------------------------------------------------------
// Real-time recurrent learning (Williams and Zipser 1989): the gradient of a loss at every step, forward in time, with memory that
// does not grow with it. step: (params..., states..., rest...) -> (states..., loss).
// Result: (params..., states..., sensitivities..., rest...) -> (states..., loss, sensitivities..., gradients...), where
// sensitivities are d state / d params, (P, state shape), P the number of parameters; zero before the first step. Gradients are
// those of this step's loss, by parameter. An integer among the states (a counter) has a sensitivity of its dtype, which is handed on as it is.
Function rtrl(const Function& step, int num_params, int num_states);

// ---- with structure -------------------------------------------------------------------------------------------
enum class JacobianMode { Auto, Forward, Reverse, Mixed };
std::string_view name_of(JacobianMode mode);  // "auto", "forward", "reverse", "mixed"
JacobianMode jacobian_mode_from_name(std::string_view name);

struct JacobianOptions {
  int argnum = 0;  // the input x
  int output = 0;  // the output y
  JacobianMode mode = JacobianMode::Auto;
  bool sparsity = true;  // whether to look for zeros inside blocks too
  // Elementary steps that may be spent on it (about 10 ns each). What would take more is called dense.
  std::int64_t max_detection_steps = 20'000'000;
  // The most bytes that dense() and blocks() may come to; 0: the memory of this machine.
  std::int64_t max_bytes = 0;
  // The numbers of a value that fn takes from the program around it, where they are the same in every call, such as the indices of a gather: zeros
  // are then found with them, as with a constant. An undefined Array where they are not known.
  std::function<Array(Value)> known_value = {};
};

// What is known of a Jacobian dy/dx before there are numbers.
//
// Along each pair of axes in `paired` the Jacobian is zero unless the index of y is that of x: it is made of blocks, one for each
// index along the paired axes. A block has num_rows rows, the elements of y along its other axes, and num_columns columns, those of x.
// Its stored elements are all of them or, if `sparse`, those of one pattern: row r has columns[row_start[r]] to
// columns[row_start[r + 1] - 1]. Stored elements may be zero; others are.
struct JacobianStructure {
  ValueType output, input;
  std::vector<std::pair<int, int>> paired;  // (axis of y, axis of x), by axis of y
  std::int64_t num_rows = 1, num_columns = 1;
  bool sparse = false;
  std::vector<std::int64_t> row_start, columns;
  bool symmetric = false;

  JacobianMode mode = JacobianMode::Forward;
  std::int64_t forward_passes = 0, reverse_passes = 0;
  double flops = 0, dense_flops = 0;  // of these passes; of one pass an element of x or y, whichever is cheaper
  std::string note;                   // what was not looked for, and why
  std::int64_t max_bytes = 0;

  std::int64_t num_blocks() const;
  std::int64_t num_stored() const;  // elements, of all blocks
  ValueType values_type() const;    // (paired..., stored) if sparse, else that of blocks()
  ValueType blocks_type() const;    // (paired..., other axes of y..., other axes of x...)
  ValueType dense_type() const;     // y.shape + x.shape
  // Where the stored elements are in the matrix (y.size, x.size), in the order of Jacobian::sparse(): CSR row pointers (i64,
  // y.size + 1), and the columns and rows of each (i64).
  Array indptr() const;
  Array column_indices() const;
  Array row_indices() const;
  std::string explain() const;
};

// A Jacobian: the stored elements and their structure. A tree with the one leaf values(), so that it goes through jit and vmap:
// return values() from a traced function and put the object together again with the structure.
class Jacobian {
 public:
  Jacobian(std::shared_ptr<const JacobianStructure> structure, Value values);

  const JacobianStructure& structure() const { return *structure_; }
  const std::shared_ptr<const JacobianStructure>& shared_structure() const { return structure_; }
  Value values() const { return values_; }
  std::string explain() const { return structure_->explain(); }

  Value blocks() const;  // structure().blocks_type()
  Value sparse() const;  // the stored elements row by row, see structure().indptr()
  // The whole array, y.shape + x.shape: blocks are copied into zeros. UserError, naming sizes, if it exceeds max_bytes.
  Value dense() const;
  Value diagonal() const;                // of a Jacobian whose y and x have one shape: that shape
  Value matvec(Value tangent) const;     // J v: x's shape -> y's
  Value rmatvec(Value cotangent) const;  // J^T u: y's shape -> x's

 private:
  Value block_matrices() const;  // (paired..., num_rows, num_columns)
  Value product(Value v, bool transposed) const;

  std::shared_ptr<const JacobianStructure> structure_;
  Value values_;
};

using JacobianFunction = std::function<Jacobian(std::span<const Value>)>;
// The Jacobian of one output with respect to one input. Its zeros are found by themselves: axes along which the function treats
// elements alone (a batch), and inside blocks by following index sets through the program and its loops; columns or rows that
// do not overlap share a pass (colouring). Mode Auto takes forward or reverse passes, or some of both, whichever are cheaper, of those that the function has.
JacobianFunction jacobian(const Function& fn, JacobianOptions options = {});
// The Hessian of fn's output, a scalar, in the same form: forward over reverse, with star colouring.
JacobianFunction sparse_hessian(const Function& fn, JacobianOptions options = {});
// Its diagonal, of the input's shape. What is not coupled shares a pass: one pass for a sum of functions of one element each.
Function hessian_diagonal(const Function& fn, int argnum = 0);

}  // namespace hotloop
