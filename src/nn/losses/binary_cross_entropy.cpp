#include <cmath>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {
namespace {

Value smoothed(Value target, double by) { return by == 0 ? target : target * (1 - by) + 0.5 * by; }

// -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) without overflow at either end. What is left of a right prediction is the logarithm, which no
// larger number is added to.
Value from_logits(Value x, Value t) {
  const Value is_above = greater(x, like(x, 0));
  return select(is_above, 1.0 - t, -t) * x + log1p(exp(select(is_above, -x, x)));
}

// Never below -100, as in PyTorch, so that a certain and wrong prediction has a finite loss. Where that is so, or 1 / v is no number any more,
// it is a line for derivatives, as steep as PyTorch's gradient can be: what is wrong still learns of it, and nothing is 0 times infinity.
Value bounded_log(Value v) {
  constexpr double bound = -100, slope = 1e12;
  const double least = v.dtype() == DType::F64 ? std::exp(bound) : 0x1p-126;
  const Value is_line = less_equal(abs(v), like(v, least));
  const Value line = stop_gradient(maximum(log(v), like(v, bound))) + slope * (v - stop_gradient(v));
  return select(is_line, line, log(select(is_line, ones_like(v), v)));
}

Value from_probabilities(Value p, Value t) { return -(t * bounded_log(p) + (1.0 - t) * bounded_log(1.0 - p)); }

Value class_of(Value, Value target) { return cast(greater_equal(target, like(target, 0.5)), DType::I32); }

}  // namespace

BinaryCrossEntropy::BinaryCrossEntropy(bool logits, double label_smoothing)
    : Loss(Pointwise{.elements =
                         [=](Value prediction, Value target) {
                           const Value t = smoothed(target, label_smoothing);
                           return logits ? from_logits(prediction, t) : from_probabilities(prediction, t);
                         },
                     .classes = class_of,
                     .num_classes = [](const ValueType&) { return std::int64_t{2}; },
                     .targets = {.least = 0, .most = 1},
                     .threshold = logits ? 0.0 : 0.5},
           "binary_cross_entropy") {
  if (!(label_smoothing >= 0 && label_smoothing < 1))
    throw UserError("binary_cross_entropy", "label_smoothing must be in [0, 1)", print_number(label_smoothing));
}

std::vector<LossDef> losses_binary_cross_entropy() {
  return {{"binary_cross_entropy",
           "mean of -t log p - (1 - t) log(1 - p) for targets t in [0, 1]",
           {{"logits", true, "predictions are logits, p = sigmoid(prediction), or probabilities p"},
            {"label_smoothing", 0.0, "targets go this far toward 1/2, in [0, 1)"}},
           [](const Config& config) -> Loss {
             return BinaryCrossEntropy(config.flag("logits"), config.number("label_smoothing"));
           }}};
}

}  // namespace hotloop::losses
