#include <algorithm>
#include <numeric>
#include <vector>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/ops.h"
#include "nn/recurrent.h"
#include "ops/rules/arguments.h"

namespace hotloop::losses {
namespace {

// One factor an element, each from what weighs some of the axes.
class ElementWeights {
 public:
  explicit ElementWeights(Value elements) : elements_(elements) {}

  void multiply(Value factor) {
    const Value all = broadcast(factor, elements_.shape(), leading_axes(factor.rank()));
    product_ = product_.defined() ? product_ * all : all;
  }
  Value product() const { return product_.defined() ? product_ : ones_like(elements_); }

 private:
  static std::vector<std::int64_t> leading_axes(int count) {
    std::vector<std::int64_t> axes(static_cast<std::size_t>(count));
    std::iota(axes.begin(), axes.end(), 0);
    return axes;
  }

  Value elements_, product_;
};

// (B, ..., n * num_outputs) -> (B, ..., n, num_outputs).
Value outputs_by_number(Value prediction, std::int64_t num_outputs) {
  Shape shape = prediction.shape();
  const int last = shape.rank() - 1;
  shape[last] /= num_outputs;
  shape.push_back(num_outputs);
  return reshape(prediction, shape);
}

bool has_outputs(const ValueType& prediction, std::int64_t num_outputs) {
  const int last = prediction.shape.rank() - 1;
  return is_float(prediction.dtype) && last >= 1 && prediction.shape[last] > 0 &&
         prediction.shape[last] % num_outputs == 0;
}

std::string names_of(const Distribution& distribution) {
  std::string names;
  for (const Distribution::Statistic& s : distribution.statistics) names += (names.empty() ? "" : ", ") + s.name;
  return names;
}

void check_outputs(const std::string& name, const Distribution& distribution, const ValueType& prediction,
                   const ValueType& target, bool takes_integers) {
  const std::int64_t count = distribution.num_outputs;
  const int last = prediction.shape.rank() - 1;
  const bool fits = has_outputs(prediction, count);
  const Shape leading = last >= 0 ? prediction.shape.without(last) : Shape();
  const std::int64_t numbers = fits ? prediction.shape[last] / count : 0;
  const bool one_each = fits && (target.shape == leading.with_inserted(leading.rank(), numbers) ||
                                 (numbers == 1 && target.shape == leading));
  const bool one_dtype = target.dtype == prediction.dtype || (takes_integers && is_integer(target.dtype));
  if (one_each && one_dtype) return;
  std::string remedy;
  if (!one_each) {
    const bool same_rank = target.shape.rank() == prediction.shape.rank() && target.shape.rank() > 0;
    const std::int64_t wanted = same_rank ? target.shape[last] * count : count;
    remedy = std::to_string(wanted) + " outputs of the last layer (units = " + std::to_string(wanted) + ")";
  }
  if (!one_dtype)
    remedy += (remedy.empty() ? "" : ", and ") + ("a target in " + std::string(name_of(prediction.dtype)));
  throw UserError(name,
                  "the prediction must have " + std::to_string(count) + (count == 1 ? " output" : " outputs") +
                      " for each number of the target, on the last axis",
                  prediction.str() + " and " + target.str(), remedy);
}

// How prediction and target of different shapes come together.
std::string shape_remedy(const Shape& prediction, const Shape& target) {
  // A sequence's output where its last step is meant.
  if (prediction.rank() == 3 && target.rank() > 0 && target[0] == prediction[0]) {
    const Shape last = prediction.without(1);
    const std::string leaves = "the layer Last() in the model, which leaves the last step, " + last.str();
    if (target == last) return leaves;
    if (target.rank() < 3 && target.size() == last.size()) return leaves + ", and a target of that shape";
  }
  // One number a sample, with and without an axis of its own.
  const std::string rest = std::string(std::min(prediction.rank(), target.rank()) == 1 ? ":" : "...");
  if (prediction.rank() == target.rank() + 1 && prediction == target.with_inserted(target.rank(), 1))
    return "a target of shape " + prediction.str() + ", y[" + rest + ", None] in Python";
  if (target.rank() == prediction.rank() + 1 && target == prediction.with_inserted(prediction.rank(), 1))
    return "a target of shape " + prediction.str() + ", y[" + rest + ", 0] in Python";
  if (prediction.rank() != target.rank()) return "reshape the target to the model's output";
  // Targets of a table stand one after another on the last axis, step by step of the horizon.
  const int last = target.rank() - 1;
  if (last < 1 || prediction.without(last) != target.without(last)) return "";
  const std::string units = std::to_string(target[last]);
  return units + " outputs of the last layer (units = " + units + "), one for each target and step of the horizon";
}

}  // namespace

std::string TargetDomain::str() const {
  if (std::isfinite(least) && std::isfinite(most)) return "from " + print_number(least) + " to " + print_number(most);
  if (std::isfinite(least)) return "at least " + print_number(least);
  return std::isfinite(most) ? "at most " + print_number(most) : "any number";
}

Loss::Loss(Function function, std::string name) : function_(std::move(function)), name_(std::move(name)) {}
Loss::Loss(Pointwise pointwise, std::string name) : pointwise_(std::move(pointwise)), name_(std::move(name)) {}

void Loss::check(Value prediction, Value target) const {
  const Value both[] = {prediction, target};
  ir::require_defined(name_, both);
  if (pointwise_.distribution) {
    check_outputs(name_, *pointwise_.distribution, prediction.type(), target.type(), pointwise_.targets.is_bounded());
    return;
  }
  if (!pointwise_.same_type || pointwise_.sequences || prediction.type() == target.type() ||
      holds_classes(prediction.type(), target.type()))
    return;
  if (is_integer(target.dtype()) && prediction.rank() == target.rank() + 1 && prediction.shape()[target.rank()] > 1)
    throw UserError(name_, "prediction and target must have one shape and dtype",
                    prediction.type().str() + " and " + target.type().str(),
                    "the loss CrossEntropy, if the target's numbers are classes");
  std::string remedy;
  if (prediction.shape() != target.shape()) remedy = shape_remedy(prediction.shape(), target.shape());
  if (prediction.dtype() != target.dtype())
    remedy += (remedy.empty() ? "" : ", and ") + ("a target in " + std::string(name_of(prediction.dtype())));
  throw UserError(name_, "prediction and target must have one shape and dtype",
                  prediction.type().str() + " and " + target.type().str(), remedy);
}

bool Loss::holds_classes(const ValueType& prediction, const ValueType& target) const {
  if (!pointwise_.threshold || !is_float(prediction.dtype) || !is_integer(target.dtype)) return false;
  return prediction.shape == target.shape || prediction.shape == target.shape.with_inserted(target.shape.rank(), 1);
}

Value Loss::as_compared(Value prediction, Value target) const {
  if (!holds_classes(prediction.type(), target.type())) return target;
  return cast(reshape(target, prediction.shape()), prediction.dtype());
}

std::int64_t Loss::num_labels(const ValueType& prediction, const ValueType& target) const {
  return pointwise_.num_classes && prediction != target ? pointwise_.num_classes(prediction) : 0;
}

Value Loss::elements(Value prediction, Value target, Value lengths) const {
  check(prediction, target);
  // Before the arithmetic too nothing is taken from beyond a row's steps, and no gradient goes there: with a target that is NaN it would be 0 times NaN.
  if (pointwise_.sequences) return pointwise_.sequences(nn::without_padding(prediction, lengths), target, lengths);
  if (!pointwise_.distribution)
    return pointwise_.elements(nn::without_padding(prediction, lengths), as_compared(prediction, target));
  const Value outputs =
      nn::without_padding(outputs_by_number(prediction, pointwise_.distribution->num_outputs), lengths);
  const Shape numbers = outputs.shape().without(outputs.rank() - 1);
  return pointwise_.elements(outputs, cast(reshape(target, numbers), prediction.dtype()));
}

Tree<Value> Loss::statistics(Value prediction) const {
  ir::require_defined(name_, {&prediction, 1});
  if (!pointwise_.distribution) return {{"prediction", prediction}};
  const Distribution& distribution = *pointwise_.distribution;
  if (!has_outputs(prediction.type(), distribution.num_outputs))
    throw UserError(name_,
                    "the last axis of a prediction must have " + std::to_string(distribution.num_outputs) +
                        " outputs for each number of the target (" + names_of(distribution) + " are read off them)",
                    prediction.type().str());
  const std::vector<Value> values = distribution.compute(outputs_by_number(prediction, distribution.num_outputs));
  Tree<Value> tree;
  for (std::size_t i = 0; i < values.size(); ++i) tree.set(distribution.statistics[i].name, values[i]);
  return tree;
}

Value Loss::operator()(Value prediction, Value target) const {
  if (has_elements()) return mean(elements(prediction, target));
  check(prediction, target);
  const Value loss = function_(prediction, target);
  ir::require_defined(name_, {&loss, 1});
  if (loss.rank() != 0) throw UserError(name_, "a loss must be a scalar", loss.type().str(), "take its mean");
  return loss;
}

Loss::Weighted Loss::operator()(Value prediction, Value target, const Weights& weights) const {
  if (!weights.samples.defined() && !weights.classes.defined() && !weights.lengths.defined()) {
    const Value loss = (*this)(prediction, target);
    return {loss, cast(extent(prediction, 0), loss.dtype())};
  }
  if (!has_elements())
    throw UserError(name_, "weights and lengths need a loss that is a mean over elements", "a plain function",
                    "make it a Loss::Pointwise");
  if (weights.samples.defined()) {
    check(prediction, target);
    if (prediction.rank() == 0 || weights.samples.type() != ValueType{prediction.dtype(), {prediction.shape()[0]}})
      throw UserError(name_, "there must be one weight a sample",
                      weights.samples.type().str() + " for predictions " + prediction.type().str());
    // A sample of weight 0 may be anything, as what lies beyond a row's steps: neither its loss nor, before the arithmetic, a gradient goes on.
    const Value counts = broadcast(not_equal(weights.samples, zeros_like(weights.samples)), prediction.shape(), {0});
    prediction = select(counts, prediction, zeros_like(prediction));
  }
  Value elements = this->elements(prediction, target, weights.lengths);
  ElementWeights factors(elements);
  if (weights.lengths.defined() && !compares_sequences()) {
    // Selected away, not multiplied by 0: what lies beyond a row's steps may be anything.
    const Value valid = nn::valid_steps(elements, weights.lengths);
    elements = select(valid, elements, zeros_like(elements));
    factors.multiply(cast(valid, elements.dtype()));
  }
  if (weights.samples.defined()) factors.multiply(weights.samples);
  if (weights.classes.defined()) {
    if (!pointwise_.classes)
      throw UserError(name_, "class weights need a loss over classes", "'" + name_ + "'", "sample weights");
    if (weights.classes.rank() != 1 || weights.classes.dtype() != elements.dtype())
      throw UserError(name_, "there must be one weight a class, in the dtype of the loss",
                      weights.classes.type().str() + " for elements " + elements.type().str());
    if (pointwise_.num_classes)
      if (const std::int64_t count = pointwise_.num_classes(prediction.type()); weights.classes.shape()[0] != count)
        throw UserError(name_, "there must be one weight for each of the " + std::to_string(count) + " classes",
                        weights.classes.type().str());
    factors.multiply(gather(weights.classes, pointwise_.classes(prediction, as_compared(prediction, target)), 0));
  }
  const Value weight = factors.product();
  if (weights.samples.defined() || weights.classes.defined())
    elements = select(not_equal(weight, zeros_like(weight)), elements, zeros_like(elements));
  const Value total = sum(weight);
  const Value divisor = select(greater(total, like(total, 0)), total, ones_like(total));
  return {sum(weight * elements) / divisor, total};
}

}  // namespace hotloop::losses
