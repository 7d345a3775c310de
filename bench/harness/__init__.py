"""The benchmark: tasks x implementations, checked results, interleaved times."""
