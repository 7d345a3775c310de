// Losses: scalar functions of a prediction and a target, averaged over all elements, or weighted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::losses {

// What the elements of a loss are weighted with; undefined members weigh nothing.
struct Weights {
  Value samples = {};  // (B), the loss' dtype, >= 0: of each sample (a row of the batch)
  Value classes = {};  // (C), the loss' dtype, >= 0: of each class of the target, for losses over classes
  Value lengths = {};  // i32 (B): elements (B, T, ...) beyond a row's steps do not count
};

// A loss held by value. Any function (prediction, target) -> scalar of the prediction's float dtype is one; a mean over elements,
// which can be weighted, is made of a Pointwise.
class Loss {
 public:
  using Function = std::function<Value(Value prediction, Value target)>;
  struct Pointwise {
    // The loss of each element, batch axis first: (B, ...).
    Function elements;
    // The class of each element's target, i32 of the elements' shape; empty for a loss without classes.
    Function classes = {};
    // Whether prediction and target must have one shape and dtype (no broadcasting: (B,) against (B, 1) is a mistake that would
    // train a constant). If not, `elements` checks what it needs.
    bool same_type = true;
    // How many classes there are for predictions of that type; empty for a loss without classes. Targets of another type than the
    // prediction are then numbers of classes.
    std::function<std::int64_t(const ValueType& prediction)> num_classes = {};
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
  // Whether targets stand for classes.
  bool has_classes() const { return static_cast<bool>(pointwise_.num_classes); }
  const std::string& name() const { return name_; }

 private:
  void check(Value prediction, Value target) const;

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
// to all classes evenly (Szegedy et al. 2016).
struct CrossEntropy : Loss {
  explicit CrossEntropy(bool logits = true, double label_smoothing = 0);
};
// -t log p - (1 - t) log(1 - p) of targets t in [0, 1], element by element. Prediction of logits (p = sigmoid) or, with
// logits = false, probabilities, whose logarithms are held above -100. Label smoothing moves targets that far toward 1/2. For class
// weights the classes are 0 (t < 1/2) and 1.
struct BinaryCrossEntropy : Loss {
  explicit BinaryCrossEntropy(bool logits = true, double label_smoothing = 0);
};
// max(q e, (q - 1) e) for e = target - prediction (Koenker and Bassett 1978), which is least where the prediction is the target's
// quantile q. Prediction (B, ..., Q), one for each quantile; target (B, ...) or (B, ..., 1).
struct Quantile : Loss {
  explicit Quantile(std::vector<double> quantiles);
};

}  // namespace hotloop::losses
