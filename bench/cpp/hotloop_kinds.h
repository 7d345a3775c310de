// The kinds of tasks that hotloop_worker does, a function each; bench/tasks says what each is.
#pragma once

#include "protocol.h"

namespace hotloop::bench {

// hotloop_recurrent.cpp
Prepared recurrent_train(const Sizes& sizes, const Arrays& inputs, int threads);
Prepared recurrent_infer(const Sizes& sizes, const Arrays& inputs, int threads);
Prepared stream_native(const Sizes& sizes, const Arrays& inputs, int threads);

// hotloop_calls.cpp
Prepared matvec(const Sizes& sizes, const Arrays& inputs, int threads);

// hotloop_derivatives.cpp
Prepared jacobian(const Sizes& sizes, const Arrays& inputs, int threads);
Prepared lstm_derivative(const Sizes& sizes, const Arrays& inputs, int threads);

// hotloop_ode.cpp
Prepared ode_training(const Sizes& sizes, const Arrays& inputs, int threads);
Prepared ode_ensemble(const Sizes& sizes, const Arrays& inputs, int threads);
Prepared ode_gradient(const Sizes& sizes, const Arrays& inputs, int threads);
Prepared ode_sensitivity(const Sizes& sizes, const Arrays& inputs, int threads);

}  // namespace hotloop::bench
