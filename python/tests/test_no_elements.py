"""Arrays without elements, loops of no step and sums of nothing: compiled, with and without optional passes, they are what the interpreter says."""

import itertools

import hotloop as hl
import numpy as np
import pytest


def arr(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def loop_of(length, reverse=False):
    def loss(w, x):
        carry, ys = hl.scan(lambda c, _: (hl.tanh(c @ w), c), x, length=length, reverse=reverse)
        return hl.sum(carry @ w) + hl.sum(ys)

    return hl.value_and_grad(loss), (arr(16, 16), arr(64, 16))


def loop_over(length):
    def loss(w, xs, h):
        return hl.sum(hl.scan(lambda c, x: (hl.tanh(c @ w + x), c.sum()), h, xs)[0])

    return hl.grad(loss), (arr(8, 8), arr(length, 40, 8), arr(40, 8))


def shrunk(x):
    def step(carry):
        x, n = carry
        return x - 0.1 * hl.sum(x * x) * x, n + hl.prod(x + 7.0).astype(hl.int32)

    return hl.while_loop(lambda c: (c[1] < 5) & (hl.sum(c[0]) < 3) & hl.all(c[0] < 9), step, (x, 0), max_steps=20)


def of_shape(shape):
    return {
        "elementwise": lambda a: (hl.tanh(a) + 1, hl.sum(a), hl.sum(a, axis=0), hl.sum(a, axis=-1), hl.prod(a, axis=0)),
        "moved": lambda a: (hl.flip(a), hl.concat([a, a], axis=0), hl.pad(a, ((1, 2),) * a.ndim), a.T),
        "cumulative": lambda a: hl.cumulative_sum(a, axis=0),
        "sorted": lambda a: hl.sort(a, axis=-1),
        "any": lambda a: (hl.any(a > 0, axis=0), hl.all(a > 0, axis=-1)),
        "gradient": hl.grad(lambda a: hl.sum(hl.tanh(a) ** 2) + hl.sum(hl.prod(a, axis=-1))),
        "batched": hl.vmap(lambda a: (hl.sum(a), a * 2)),
    }


CASES = {}
for length, reverse in itertools.product((0, 1, 2), (False, True)):
    CASES[f"loop of {length}{' reversed' * reverse}"] = loop_of(length, reverse)
    CASES[f"loop over {length}"] = loop_over(length)
for shape in ((0, 5), (5, 0), (0, 0), (3, 0, 4), (0, 3, 4)):
    CASES.update({f"{name} of {shape}": (fn, (arr(*shape),)) for name, fn in of_shape(shape).items()})
for left, right in (((5, 0), (0, 7)), ((300, 0), (0, 300)), ((5, 3), (3, 0)), ((0, 3), (3, 4)), ((0, 3, 4), (0, 4, 5)), ((70, 3, 0), (70, 0, 5))):
    CASES[f"product of {left} and {right}"] = (lambda a, b: a @ b, (arr(*left), arr(*right)))
for text, left, right in (("aij,bij->ab", (64, 3, 0), (64, 3, 0)), ("iaj,bij->ab", (0, 64, 3), (64, 0, 3)), ("aijk,bkij->ab", (2, 3, 0, 5), (7, 5, 3, 0))):
    CASES[f"einsum {text} of {left}"] = (lambda a, b, text=text: hl.einsum(text, a, b), (arr(*left), arr(*right)))
for width in (0, 1, 3):
    CASES[f"mapped loop over rows of {width}"] = (hl.vmap(shrunk), (arr(50, width),))
    CASES[f"mapped loop over {width} rows"] = (hl.vmap(shrunk), (arr(width, 4),))
CASES["scattered nowhere"] = (hl.scatter_add, (arr(4, 3), np.zeros(0, np.int32), arr(0, 3)))
CASES["scattered nothing"] = (hl.scatter_add, (arr(4, 0), np.zeros(3, np.int32), arr(3, 0)))
CASES["taken of nothing"] = (lambda a, i: hl.take(a, i, axis=0), (arr(4, 0), np.zeros(3, np.int32)))
CASES["nothing taken of nothing"] = (lambda a, i: hl.take(a, i, axis=0), (arr(0, 4), np.zeros(0, np.int32)))
CASES["mean of nothing"] = (lambda a: (hl.mean(a), hl.var(a), hl.softmax(a)), (arr(0),))


@pytest.mark.parametrize("disabled", [(), ("inline_loops", "simplify"), ("all",)], ids=["all passes", "some passes", "no passes"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_what_the_interpreter_says(name, disabled):
    fn, args = CASES[name]
    expected = hl.tree.leaves(hl.jit(fn, backend="interp", disabled_passes=disabled)(*args))
    for threads in (1, 2):
        found = hl.tree.leaves(hl.jit(fn, threads=threads, disabled_passes=disabled)(*args))
        assert [a.shape for a in found] == [a.shape for a in expected]
        for a, b in zip(found, expected, strict=True):
            assert np.allclose(a, b, rtol=1e-10, atol=1e-10, equal_nan=True)
