/* Two hundred steps of an exported model, printed to the bit: what exports.sh compares between compilers and processors. */
#include <stdio.h>
#include <string.h>

#include "net.h"

int main(void) {
  static net_voice voice;
  static float x[net_INPUTS], y[net_OUTPUTS];
  unsigned state = 12345;
  if (net_init(&voice, NULL) != 0) return 1;
  for (int t = 0; t < 200; ++t) {
    for (int i = 0; i < net_INPUTS; ++i) {
      state = state * 1664525u + 1013904223u;
      x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    if (t % 7 == 0) x[0] = 1e-41f; /* below the normal range */
    if (t == 150) net_reset(&voice);
    net_step(&voice, x, y);
    for (int i = 0; i < net_OUTPUTS; ++i) {
      unsigned bits;
      memcpy(&bits, &y[i], sizeof bits);
      printf("%08x\n", bits);
    }
  }
  return 0;
}
