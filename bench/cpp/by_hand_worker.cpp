// Programs written by hand for one task and one machine: what the compiler is measured against.
#include "by_hand_kinds.h"

int main(int argc, char** argv) {
  return hotloop::bench::serve(argc, argv, "by_hand", "AVX-512, g++",
                               {{"recurrent_train", recurrent_train}, {"stream_native", stream_native}});
}
