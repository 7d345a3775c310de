#include <vector>

#include "hotloop/jit.h"
#include "train/class_labels.h"
#include "train/metrics.h"

namespace hotloop::metrics {
namespace {

// The weighted mean of the loss of each sample, in double.
class LossMean : public Accumulator {
 public:
  explicit LossMean(const losses::Loss& loss)
      : loss_(loss),
        compiled_(jit([loss](std::span<const Value> in) { return std::vector<Value>{loss(in[0], in[1])}; })) {}

  void add(std::span<const double> prediction, std::span<const double> target, double weight) override {
    const auto row = [](std::span<const double> numbers) {
      return Array::from(std::vector<double>(numbers.begin(), numbers.end()),
                         {1, static_cast<std::int64_t>(numbers.size())});
    };
    if (weight == 0) return;
    const Array predicted = row(prediction), wanted = row(target);
    const std::int64_t num_classes = loss_.num_labels(predicted.type(), wanted.type());
    for (const double one : target) train::check_target(loss_.name(), loss_, num_classes, one);
    total_ += weight * compiled_({predicted, wanted})[0].at(0);
    weight_ += weight;
  }
  double value() const override { return total_ / weight_; }

 private:
  losses::Loss loss_;
  Jit compiled_;
  double total_ = 0, weight_ = 0;
};

}  // namespace

Metric of_loss(const losses::Loss& loss) {
  return Metric(loss.name(), Better::Smaller, 0, [loss] { return std::make_unique<LossMean>(loss); }).of(loss);
}

}  // namespace hotloop::metrics
