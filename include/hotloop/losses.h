// Losses: scalar functions of a prediction and a target, averaged over all elements, or weighted.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/tree.h"

namespace hotloop::losses {

// What the elements of a loss are weighted with; undefined members weigh nothing.
struct Weights {
  Value samples = {};  // (B), the loss' dtype, >= 0: of each sample (a row of the batch)
  Value classes = {};  // (C), the loss' dtype, >= 0: of each class of the target, for losses over classes
  Value lengths = {};  // i32 (B): elements (B, T, ...) beyond a row's steps do not count
};

// What a model's outputs say of a target, for losses that take several outputs for each number of it: quantiles, or the parameters of a
// distribution. A prediction has them side by side on its last axis, (B, ..., n * num_outputs): those of the target's first number, then
// those of its second. The target is (B, ..., n), or for n = 1 also (B, ...).
struct Distribution {
  struct Statistic {
    std::string name;  // "mean", "std", "q10"
    // Of a quantile: the share of targets that should lie below.
    double level = std::numeric_limits<double>::quiet_NaN();
    bool is_width = false;  // it scales with the target's unit and does not move with its zero point
  };
  std::int64_t num_outputs = 1;
  std::vector<Statistic> statistics = {};
  std::size_t point = 0;  // the statistic that stands for the target where one number must: in a metric, say
  // The statistics, each (...), of outputs (..., num_outputs).
  std::function<std::vector<Value>(Value outputs)> compute = {};
};

// Which numbers targets may be.
struct TargetDomain {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  // Not all numbers: targets are to be left as they are, not standardised.
  bool is_bounded() const { return std::isfinite(least) || std::isfinite(most); }
  // A missing one, NaN, is none that lies outside.
  bool holds(double target) const { return !(target < least) && !(target > most); }
  std::string str() const;  // "from 0 to 1", "at least 0"
};

// A loss held by value. Any function (prediction, target) -> scalar of the prediction's float dtype is one; a mean over elements,
// which can be weighted, is made of a Pointwise.
class Loss {
 public:
  using Function = std::function<Value(Value prediction, Value target)>;
  struct Pointwise {
    // The loss of each element, batch axis first: (B, ...).
    Function elements = {};
    // The class of each element's target, i32 of the elements' shape; empty for a loss without classes.
    Function classes = {};
    // Whether prediction and target must have one shape and dtype (no broadcasting: (B,) against (B, 1) is a mistake that would
    // train a constant). If not, `elements` checks what it needs.
    bool same_type = true;
    // How many classes there are for predictions of that type; empty for a loss without classes. Targets of another type than the
    // prediction are then numbers of classes.
    std::function<std::int64_t(const ValueType& prediction)> num_classes = {};
    // Where a prediction is not of the target's numbers themselves; `elements` then takes outputs (B, ..., n, num_outputs) and a
    // target (B, ..., n) of one dtype, which have been checked.
    std::optional<Distribution> distribution = {};
    // In place of `elements`, for losses of whole sequences: the loss of each row, (B); lengths: i32 (B), the rows' steps, undefined where all count.
    std::function<Value(Value prediction, Value target, Value lengths)> sequences = {};
    // Of targets that are no numbers of classes. A loss with bounded ones takes integers too.
    TargetDomain targets = {};
    // Of two classes told by one output: that above which a prediction says class 1. Targets may then be numbers of classes too, (B, ...) for
    // predictions (B, ...) or (B, ..., 1).
    std::optional<double> threshold = {};
  };

  explicit Loss(Function function, std::string name = "loss");
  Loss(Pointwise pointwise, std::string name);

  // The loss under trace; UserError if the operands do not fit.
  Value operator()(Value prediction, Value target) const;
  struct Weighted {
    Value loss;  // sum of weight * element / weight, in the sum's sense: a mean over what is weighted (0 if nothing is)
    Value total;  // sum of the elements' weights: what several batches' losses are to be averaged with
  };
  // UserError if the loss is a plain function and anything is weighted, or has no classes and classes are.
  Weighted operator()(Value prediction, Value target, const Weights& weights) const;
  // How many classes a target may name that stands for one of them; 0 where targets are no such numbers.
  std::int64_t num_labels(const ValueType& prediction, const ValueType& target) const;
  // Whether it compares whole sequences, predictions (B, T, ...) with targets that need no step of their own for each of theirs.
  bool compares_sequences() const { return static_cast<bool>(pointwise_.sequences); }
  // Whether targets stand for classes.
  bool has_classes() const { return static_cast<bool>(pointwise_.num_classes); }
  const TargetDomain& targets() const { return pointwise_.targets; }
  // Above which one output says class 1; for losses that say nothing of it 0, as for logits.
  double threshold() const { return pointwise_.threshold.value_or(0); }
  // What predictions say; null where they are of the target's numbers themselves.
  const Distribution* distribution() const { return pointwise_.distribution ? &*pointwise_.distribution : nullptr; }
  // By name the statistics (B, ..., n) of a prediction (B, ..., n * num_outputs); without a distribution one "prediction", which it is.
  // UserError for a prediction of another shape.
  Tree<Value> statistics(Value prediction) const;
  const std::string& name() const { return name_; }

 private:
  void check(Value prediction, Value target) const;
  // Whether a target of that type holds a number of a class for each prediction, one of two.
  bool holds_classes(const ValueType& prediction, const ValueType& target) const;
  // A target that has been checked as the definition takes it.
  Value as_compared(Value prediction, Value target) const;
  // (B, ...); with lengths, beyond which predictions do not count. What a target says there is still in the elements.
  Value elements(Value prediction, Value target, Value lengths = {}) const;
  bool has_elements() const { return pointwise_.elements || pointwise_.sequences; }

  Pointwise pointwise_;
  Function function_;  // of the whole, if there is no pointwise_.elements
  std::string name_;
};

// Means divide by the number of elements that are there, so a last batch with fewer rows is not scaled down.
struct MSE : Loss {  // mean of (prediction - target)^2
  MSE();
};
struct MAE : Loss {  // mean of |prediction - target|; derivative 0 where they are equal
  MAE();
};
// With e = |prediction - target|: e^2 / 2 up to delta, delta (e - delta / 2) beyond (Huber 1964).
struct Huber : Loss {
  explicit Huber(double delta = 1);
};
// -log p of the target's class. Prediction (B, ..., C) of logits (p = softmax along the last axis) or, with logits = false, of
// probabilities. Target (B, ...) or (B, ..., 1) of classes, as integers or floats that hold them (one outside 0..C-1 counts for
// none), or a distribution over the classes of the prediction's type: one-hot, say. Label smoothing moves that share of the target
// to all classes evenly but those of logit -inf (Szegedy et al. 2016).
struct CrossEntropy : Loss {
  explicit CrossEntropy(bool logits = true, double label_smoothing = 0);
};
// -t log p - (1 - t) log(1 - p) of targets t in [0, 1], element by element. Prediction of logits (p = sigmoid) or, with
// logits = false, probabilities, whose logarithms are held above -100. Targets may also be integers 0 and 1, (B, ...) for predictions (B, ...)
// or (B, ..., 1). Label smoothing moves targets that far toward 1/2. For class
// weights the classes are 0 (t < 1/2) and 1.
struct BinaryCrossEntropy : Loss {
  explicit BinaryCrossEntropy(bool logits = true, double label_smoothing = 0);
};
// -log of the probability that labels come one after another, each for one or several steps and with blanks between, at steps that nobody
// says: connectionist temporal classification (Graves, Fernandez, Gomez and Schmidhuber 2006). Prediction (B, T, C) of logits; target (B, L) of
// labels 0..C-1 but the blank, as integers or floats that hold them, and behind a row's last label negative numbers. Lengths are the rows'
// steps. The mean is over rows. Labels that do not fit into a row's steps have an infinite loss, or 0 with zero_infinity; no gradient either way.
struct CTC : Loss {
  explicit CTC(std::int64_t blank = 0, bool zero_infinity = false);
};
// max(q e, (q - 1) e) for e = target - prediction (Koenker and Bassett 1978), which is least where the prediction is the target's
// quantile q. One output for each quantile.
struct Quantile : Loss {
  explicit Quantile(std::vector<double> quantiles);
};
// log cosh(prediction - target): half the square near 0, |e| - log 2 far away, with all derivatives everywhere.
struct LogCosh : Loss {
  LogCosh();
};

// ---- negative log-likelihoods: the outputs are parameters of a distribution of the target ----------------------------

// N(mean, std^2); outputs mean and raw, std = softplus(raw) + epsilon (Nix and Weigend 1994). Statistics "mean", "std" and both ends of
// the central interval with probability `interval`: "q10" and "q90" for 0.8.
struct Gaussian : Loss {
  explicit Gaussian(double epsilon = 1e-4, double interval = 0.8);
};
// Student's t with `df` degrees of freedom, which outliers move less (Lange, Little and Taylor 1989); outputs location and raw, scale =
// softplus(raw) + epsilon. Statistics "median", "scale" and both ends of the central interval with probability `interval`.
struct StudentT : Loss {
  explicit StudentT(double df = 5, double epsilon = 1e-4, double interval = 0.8);
};
// Counts, or rates >= 0, with one output, the logarithm of their mean: exp(x) - t x, with log Gamma(t + 1), which no parameter changes, only if
// `full`. Statistics "mean" and "std".
struct Poisson : Loss {
  explicit Poisson(bool full = false);
};
// Counts that vary more than Poisson's: mean m = exp(output) and variance m + a m^2 with a = softplus(raw) + epsilon (Lawless 1987).
// Statistics "mean" and "std".
struct NegativeBinomial : Loss {
  explicit NegativeBinomial(double epsilon = 1e-4);
};

}  // namespace hotloop::losses
