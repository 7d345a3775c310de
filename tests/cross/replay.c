// Runs one recorded program (record.cpp) on another processor and compares its outputs, bit by bit.
//
// usage: replay CASE.bin      linked with the program's C
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// As in src/backends/backend.h.
struct KernelContext {
  void* const* arguments;
  void* const* results;
  void *shared, *scratch;
  int64_t rows, worker, num_workers;
  void (*barrier)(void*);
  void* team;
  const int32_t* cancel;
};
void hotloop_kernel(const struct KernelContext* context);

static void read_into(FILE* file, void* to, size_t bytes) {
  if (fread(to, 1, bytes, file) != bytes) {
    fprintf(stderr, "the record is too short\n");
    exit(2);
  }
}
static int64_t read_integer(FILE* file) {
  int64_t value;
  read_into(file, &value, sizeof value);
  return value;
}
// Aligned memory that is never empty.
static void* memory(int64_t bytes) { return aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64); }

enum { most = 256 };

int main(int argc, char** argv) {
  FILE* file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  if (file == NULL) return 2;
  const int64_t rows = read_integer(file), shared = read_integer(file), scratch = read_integer(file);
  const int64_t num_inputs = read_integer(file), num_outputs = read_integer(file);
  if (num_inputs > most || num_outputs > most) return 2;
  void *inputs[most], *outputs[most];
  for (int64_t i = 0; i < num_inputs; ++i) {
    const int64_t bytes = read_integer(file);
    inputs[i] = memory(bytes);
    read_into(file, inputs[i], (size_t)bytes);
  }
  void* expected[most];
  int64_t sizes[most];
  for (int64_t i = 0; i < num_outputs; ++i) {
    sizes[i] = read_integer(file);
    expected[i] = memory(sizes[i]);
    outputs[i] = memory(sizes[i]);
    memset(outputs[i], 0xa5, (size_t)sizes[i]);
    read_into(file, expected[i], (size_t)sizes[i]);
  }
  const int32_t cancel = 0;
  const struct KernelContext context = {.arguments = inputs,
                                        .results = outputs,
                                        .shared = memory(shared),
                                        .scratch = memory(scratch),
                                        .rows = rows,
                                        .num_workers = 1,
                                        .cancel = &cancel};
  hotloop_kernel(&context);
  int64_t differing = 0, all = 0;
  for (int64_t i = 0; i < num_outputs; ++i)
    for (int64_t k = 0; k < sizes[i]; ++k, ++all)
      differing += ((unsigned char*)outputs[i])[k] != ((unsigned char*)expected[i])[k];
  printf("%lld of %lld bytes differ\n", (long long)differing, (long long)all);
  return differing != 0;
}
