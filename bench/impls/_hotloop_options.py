"""Keyword arguments of every hl.jit of the benchmark; setup() of an implementation fills them in."""

OPTIONS = {}
