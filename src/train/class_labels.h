// Targets that are labels: indices of classes.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace hotloop::train {

// Whether `label` is the index of one of so many classes.
inline bool names_class(double label, std::int64_t num_classes) {
  return label >= 0 && label < static_cast<double>(num_classes) && label == std::floor(label);
}

// Throws the UserError of a label that names none; `of` follows it, " of sample 3".
[[noreturn]] void refuse_label(const std::string& where, double label, std::int64_t num_classes,
                               const std::string& of = "");

}  // namespace hotloop::train
