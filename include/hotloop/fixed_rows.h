// The error of a program whose number of rows cannot vary.
#pragma once

#include "hotloop/error.h"

namespace hotloop {

// Thrown by compile() when CompileOptions::batch_axes ask for a variable number of rows and an operation couples the rows in another
// way than by a sum, as a sort or a convolution along the batch does. Compiled for each number of rows by itself, the program works.
class NeedsFixedRows : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace hotloop
