#include <limits>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "nn/registry.h"
#include "ops/composed/log_softmax.h"

namespace hotloop::losses {
namespace {

constexpr double least_probability = 0x1p-126;

// What a target says of a prediction (B, ..., C).
enum class TargetKind { Classes, Distribution };

TargetKind kind_of(Value prediction, Value target) {
  const int last = prediction.rank() - 1;
  if (last < 1 || prediction.shape()[last] < 2)
    throw UserError("cross_entropy", "the prediction must be (batch, ..., classes) with at least two classes",
                    prediction.type().str(), "binary_cross_entropy for one output");
  const Shape without = prediction.shape().without(last);
  if (target.type() == prediction.type()) return TargetKind::Distribution;
  if (target.shape() == without || target.shape() == without.with_inserted(last, 1)) return TargetKind::Classes;
  throw UserError("cross_entropy", "the target must be a class for each prediction, or a distribution over the classes",
                  prediction.type().str() + " and " + target.type().str());
}

// i32 of the prediction's shape but the last axis.
Value class_of(Value prediction, Value target) {
  if (kind_of(prediction, target) == TargetKind::Distribution) return argmax(target, prediction.rank() - 1);
  // Limited before they are cut off at 32 bits, which would make classes of numbers that are none.
  if (target.dtype() == DType::I64) target = maximum(target, like(target, -1));
  if (target.dtype() == DType::I64 || target.dtype() == DType::U32)
    target = minimum(target, like(target, std::numeric_limits<std::int32_t>::max()));
  return reshape(cast(target, DType::I32), prediction.shape().without(prediction.rank() - 1));
}

// log of each class's probability, of the prediction's shape.
Value log_probabilities(Value prediction, bool logits) {
  const int last = prediction.rank() - 1;
  if (logits) return log_softmax(prediction, last);
  // Probabilities need not add up to 1, and are not below the least normal f32 in the logarithm; nor are they where all are 0.
  const Value total = reduce_sum(prediction, {last}), is_none = equal(total, like(total, 0));
  const Value divisor = broadcast_to(expand_dims(select(is_none, ones_like(total), total), -1), prediction.shape());
  return log(maximum(prediction / divisor, like(prediction, least_probability)));
}

// A class of logit -inf, which a mask leaves out, has the probability 0: it counts only where the target has a share of it, and of label
// smoothing it has none. It is selected away, since 0 times its logarithm would be NaN.
Value elements_of(Value prediction, Value target, bool logits, double label_smoothing) {
  const int last = prediction.rank() - 1;
  const Shape& shape = prediction.shape();
  const Value log_p = log_probabilities(prediction, logits), none = zeros_like(log_p);
  const Value impossible = constant(-std::numeric_limits<double>::infinity(), log_p.dtype(), shape);
  Value loss, is_class;
  if (kind_of(prediction, target) == TargetKind::Classes) {
    // Selected by comparison: a class outside 0..C-1 selects none.
    const Value index = class_of(prediction, target);
    is_class =
        bit_and(greater_equal(index, like(index, 0)), less(index, like(index, static_cast<double>(shape[last]))));
    const Value wanted = equal(iota(DType::I32, shape, last), broadcast_to(expand_dims(index, -1), shape));
    loss = -reduce_sum(select(wanted, log_p, none), {last});
  } else {
    const Value counts_none = bit_and(equal(target, none), equal(log_p, impossible));
    loss = -reduce_sum(target * select(counts_none, none, log_p), {last});
  }
  if (label_smoothing == 0) return loss;
  const Value is_possible = not_equal(log_p, impossible);
  const Value spread =
      -reduce_sum(select(is_possible, log_p, none), {last}) / reduce_sum(cast(is_possible, log_p.dtype()), {last});
  const Value smoothed = (1 - label_smoothing) * loss + label_smoothing * spread;
  return is_class.defined() ? select(is_class, smoothed, zeros_like(smoothed)) : smoothed;
}

}  // namespace

CrossEntropy::CrossEntropy(bool logits, double label_smoothing)
    : Loss(Pointwise{
               [=](Value prediction, Value target) { return elements_of(prediction, target, logits, label_smoothing); },
               class_of, false, [](const ValueType& p) { return p.shape[p.shape.rank() - 1]; }},
           "cross_entropy") {
  if (!(label_smoothing >= 0 && label_smoothing < 1))
    throw UserError("cross_entropy", "label_smoothing must be in [0, 1)", print_number(label_smoothing));
}

std::vector<LossDef> losses_cross_entropy() {
  return {
      {"cross_entropy",
       "mean of -log p of the target's class; targets are classes from 0, or distributions over them. Labels outside 0 "
       "to C - 1 are refused by fit; a loop of one's own does not check them, and their loss is 0",
       {{"logits", true, "predictions are logits, p = softmax(prediction), or probabilities"},
        {"label_smoothing", 0.0,
         "share of the target spread over all classes but those whose logit is -inf, in [0, 1)"}},
       [](const Config& config) -> Loss {
         return CrossEntropy(config.flag("logits"), config.number("label_smoothing"));
       }}};
}

}  // namespace hotloop::losses
