// What numbers targets may be: indices of classes, or those of a loss's domain.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "hotloop/losses.h"

namespace hotloop::train {

// Whether `label` is the index of one of so many classes.
inline bool names_class(double label, std::int64_t num_classes) {
  return label >= 0 && label < static_cast<double>(num_classes) && label == std::floor(label);
}

// Throws the UserError of a label that names none; `of` follows it, " of sample 3".
[[noreturn]] void refuse_label(const std::string& where, double label, std::int64_t num_classes,
                               const std::string& of = "");

// UserError unless a loss can compare that target: an index of one of `num_classes`, or where that is 0 (Loss::num_labels) one of its domain.
void check_target(const std::string& where, const losses::Loss& loss, std::int64_t num_classes, double target,
                  const std::string& of = "");

}  // namespace hotloop::train
