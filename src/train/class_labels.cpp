#include "train/class_labels.h"

#include "core/print_number.h"
#include "hotloop/error.h"

namespace hotloop::train {

void refuse_label(const std::string& where, double label, std::int64_t num_classes, const std::string& of) {
  throw UserError(where,
                  "a target must be a class index, a whole number from 0 and below " + std::to_string(num_classes),
                  print_number(label) + of, "labels counted from 0, or a model with one output a class");
}

}  // namespace hotloop::train
