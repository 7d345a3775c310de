// Metrics: what a validation or test is judged by, computed over a whole dataset in double precision.
//
//   std::unique_ptr<metrics::Accumulator> sum = metrics::MAE().start();
//   for (each sample) sum->add(prediction, target);         // spans of doubles
//   double mae = sum->value();
//
// A metric is never a mean of batches' metrics: its accumulator keeps what the whole needs (a sum and a count, the counts of each
// class, ...), so that the value does not depend on how the samples were batched.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hotloop/losses.h"

namespace hotloop::metrics {

// What has been seen of a dataset.
class Accumulator {
 public:
  virtual ~Accumulator() = default;
  // One sample, or one step of a sequence: the numbers predicted and those wanted, and the weight of all of them, >= 0. UserError
  // if the metric cannot compare them.
  virtual void add(std::span<const double> prediction, std::span<const double> target, double weight = 1) = 0;
  // The metric of what was added; NaN if that is nothing.
  virtual double value() const = 0;
};

enum class Better { Smaller, Larger };

// A metric held by value.
class Metric {
 public:
  using Start = std::function<std::unique_ptr<Accumulator>()>;
  // The value is in the target's units to the power `unit_power`: of a target divided by s it is to be multiplied by s to it.
  Metric(std::string name, Better better, int unit_power, Start start)
      : name_(std::move(name)), better_(better), unit_power_(unit_power), start_(std::move(start)) {}
  // The weighted mean over all numbers of error(prediction, target), which is in the target's units to `unit_power`.
  static Metric mean_of(std::string name, int unit_power, double (*error)(double prediction, double target));

  const std::string& name() const { return name_; }
  Better better() const { return better_; }
  int unit_power() const { return unit_power_; }
  // The loss that it is the mean of, which compares a model's outputs as they are and not what stands for the target
  // (losses::Distribution::point); null of other metrics.
  const losses::Loss* loss() const { return loss_.get(); }
  Metric of(const losses::Loss& loss) const;
  // The same by another name.
  Metric named(std::string name) const;
  // Whether `a` is better than `b`; a NaN is never better, and anything is better than a NaN.
  bool is_better(double a, double b) const;
  // The value where smaller is better, for schedules that observe it.
  double as_loss(double value) const { return better_ == Better::Smaller ? value : -value; }
  std::unique_ptr<Accumulator> start() const { return start_(); }

 private:
  std::string name_;
  Better better_;
  int unit_power_;
  std::shared_ptr<const losses::Loss> loss_ = {};
  Start start_;
};

// ---- one line each; the definition is in src/train/metrics ----------------------------------------------------------

// Means over all numbers of all samples: |p - t|, (p - t)^2, and the root of the latter's mean.
struct MAE : Metric {
  MAE();
};
struct MSE : Metric {
  MSE();
};
struct RMSE : Metric {
  RMSE();
};
// 1 - sum (p - t)^2 / sum (t - mean t)^2, the mean and sums over all samples, for each number of the target; then the mean over
// these (scikit-learn's uniform_average). A target that never varies counts 1 if it is predicted exactly, else 0.
struct R2 : Metric {
  R2();
};
// The share of samples whose class is right. C > 1 predictions are scores, the class is the largest one's (the first of
// equals); the target is a class index, or C numbers whose largest is the class. One prediction is a binary score, class 1
// above `threshold`: 0 for logits, 0.5 for probabilities.
struct Accuracy : Metric {
  explicit Accuracy(double threshold = 0);
};
// Mean over classes of F1 = 2 tp / (2 tp + fp + fn) (macro average), over the classes that occur among targets or predictions.
// Classes as Accuracy's.
struct F1 : Metric {
  explicit F1(double threshold = 0);
};
// Of two classes: the area under the ROC curve, which is the share of pairs of a sample of class 1 and one of class 0 of which the
// former has the higher score; a pair of equal scores counts 1/2, each pair the product of its weights (Hanley & McNeil, 1982). The
// score is the one prediction, or of two predictions the second less the first: logits and probabilities give the same. NaN where
// one of the classes does not occur, or a score is NaN. Keeps 24 bytes a sample.
struct AUC : Metric {
  AUC();
};

}  // namespace hotloop::metrics
