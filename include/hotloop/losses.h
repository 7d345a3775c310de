// Losses: scalar functions of a prediction and a target, averaged over all elements.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "hotloop/graph.h"

namespace hotloop::losses {

// A loss held by value. Any function (prediction, target) -> scalar of the same float dtype is one.
class Loss {
 public:
  using Function = std::function<Value(Value prediction, Value target)>;
  explicit Loss(Function function, std::string name = "loss")
      : function_(std::move(function)), name_(std::move(name)) {}

  // The loss under trace; prediction and target of one shape and dtype, UserError otherwise (no broadcasting: (B,) against
  // (B, 1) is a mistake that would train a constant).
  Value operator()(Value prediction, Value target) const;
  const std::string& name() const { return name_; }

 private:
  Function function_;
  std::string name_;
};

// Means divide by the number of elements that are there, so a last batch with fewer rows is not scaled down.
struct MSE : Loss {  // mean of (prediction - target)^2
  MSE();
};
struct MAE : Loss {  // mean of |prediction - target|; derivative 0 where they are equal
  MAE();
};

}  // namespace hotloop::losses
