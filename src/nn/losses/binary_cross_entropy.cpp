#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {
namespace {

Value smoothed(Value target, double by) { return by == 0 ? target : target * (1 - by) + 0.5 * by; }

// -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) without overflow at either end.
Value from_logits(Value x, Value t) { return softplus(x) - x * t; }

// The logarithms are never below -100, as in PyTorch, so that a certain and wrong prediction has a finite loss.
Value from_probabilities(Value p, Value t) {
  const auto bounded_log = [](Value v) { return maximum(log(v), like(v, -100)); };
  return -(t * bounded_log(p) + (1.0 - t) * bounded_log(1.0 - p));
}

Value class_of(Value, Value target) { return cast(greater_equal(target, like(target, 0.5)), DType::I32); }

}  // namespace

BinaryCrossEntropy::BinaryCrossEntropy(bool logits, double label_smoothing)
    : Loss(Pointwise{[=](Value prediction, Value target) {
                       const Value t = smoothed(target, label_smoothing);
                       return logits ? from_logits(prediction, t) : from_probabilities(prediction, t);
                     },
                     class_of, true, [](const ValueType&) { return std::int64_t{2}; }},
           "binary_cross_entropy") {
  if (!(label_smoothing >= 0 && label_smoothing < 1))
    throw UserError("binary_cross_entropy", "label_smoothing must be in [0, 1)", std::to_string(label_smoothing));
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
