// Hotloop through its C++ interface, for the benchmark.
#include "hotloop_kinds.h"

int main(int argc, char** argv) {
  using namespace hotloop::bench;
  return serve(argc, argv, "hotloop_cpp", "hotloop " HOTLOOP_VERSION,
               {{"recurrent_train", recurrent_train},
                {"recurrent_infer", recurrent_infer},
                {"stream_native", stream_native},
                {"matvec", matvec},
                {"jacobian", jacobian},
                {"lstm_derivative", lstm_derivative},
                {"ode_training", ode_training},
                {"ode_ensemble", ode_ensemble},
                {"ode_gradient", ode_gradient},
                {"ode_sensitivity", ode_sensitivity}});
}
