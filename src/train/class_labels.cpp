#include "train/class_labels.h"

#include "core/print_number.h"
#include "hotloop/error.h"

namespace hotloop::train {

void refuse_label(const std::string& where, double label, std::int64_t num_classes, const std::string& of) {
  throw UserError(where,
                  "a target must be a class index, a whole number from 0 and below " + std::to_string(num_classes),
                  print_number(label) + of, "labels counted from 0, or a model with one output a class");
}

void check_target(const std::string& where, const losses::Loss& loss, std::int64_t num_classes, double target,
                  const std::string& of) {
  if (num_classes > 0) {
    if (!names_class(target, num_classes)) refuse_label(where, target, num_classes, of);
  } else if (!loss.targets().holds(target)) {
    throw UserError(where, "a target of " + loss.name() + " must be " + loss.targets().str(), print_number(target) + of,
                    "targets as they are, not standardised, or another loss");
  }
}

}  // namespace hotloop::train
