"""What a condition leaves out, singular as it may be, reaches no derivative of any order: also where it is inside of a region, a checkpoint's, a rule's
or a loop's."""

import hotloop as hl
import numpy as np
import pytest


def product(w, c):
    return w * hl.log(1 - c)


@hl.custom_vjp
def with_a_rule(w, c):
    return product(w, c)


with_a_rule.defvjp(
    lambda w, c: (product(w, c), (w, c)),
    lambda known, ct: (ct * hl.log(1 - known[1]), -ct * known[0] / (1 - known[1])),
)


def over_steps(wrap):
    def run(w, c):
        step = wrap(lambda s, z: (s * 0.9 + w * hl.log(1 - z), None))
        return hl.scan(step, w * 0.0, hl.stack([c, c * c, c * 0.5]))[0]

    return run


def until_done(wrap):
    def run(w, c):
        step = wrap(lambda s: (s[0] + w * hl.log(1 - c), s[1] + 1))
        return hl.while_loop(lambda s: s[1] < 3, step, (w * 0.0, 0), max_steps=5)[0]

    return run


def plain(f):
    return f


# What is left out by name: (itself, the same without regions).
LEFT_OUT = {
    "checkpoint": (hl.checkpoint(product), product),
    "checkpoints in a checkpoint": (
        hl.checkpoint(lambda w, c: hl.checkpoint(product)(w, c) * hl.sin(hl.checkpoint(product)(c, w * 0.01))),
        lambda w, c: product(w, c) * hl.sin(product(c, w * 0.01)),
    ),
    "rule": (with_a_rule, product),
    "scan": (over_steps(plain), None),
    "scan of checkpoints": (over_steps(hl.checkpoint), None),
    "checkpoint of a scan": (hl.checkpoint(over_steps(plain)), None),
    "while": (until_done(plain), None),
    "while of checkpoints": (until_done(hl.checkpoint), None),
}


def unrolled(name, w, c):
    if "scan" in name:
        return w * (0.81 * hl.log(1 - c) + 0.9 * hl.log(1 - c * c) + hl.log(1 - 0.5 * c))
    return 3 * w * hl.log(1 - c)


POINTS = np.array([0.1, 0.5, 0.85])

# Each takes log(1 - c) where it is finite alone, in what is selected.
CONTEXTS = {
    "select": (lambda h, w: hl.where(w > 10, h(w, 0.5 * w + 0.5), w * w * w), lambda h, w: w**3),
    "the other side": (
        lambda h, w: hl.where(w < 10, h(w, 0.5 * w), h(w, w) * w),
        lambda h, w: h(w, 0.5 * w),
    ),
    "branches of lanes": (
        lambda h, w: hl.vmap(lambda x: hl.cond(x < 0.3, lambda x: h(w * w, 2 * x), lambda x: x * w**3, x))(POINTS).sum(),
        lambda h, w: h(w * w, np.float64(0.2)) + (0.5 + 0.85) * w**3,
    ),
    "branches of lanes of lanes": (
        lambda h, w: hl.vmap(
            lambda y: hl.vmap(lambda x: hl.cond(x * y < 0.3, lambda x: h(w * y, 2 * x * y + 0.4), lambda x: x * w**3, x))(POINTS).sum()
        )(POINTS).sum(),
        lambda h, w: sum(
            h(w * y, np.float64(2 * x * y + 0.4)) if x * y < 0.3 else x * w**3 for y in POINTS for x in POINTS
        ),
    ),
}  # fmt: skip


def derivative(f, order):
    for _ in range(order):
        f = hl.grad(f)
    return f


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_inside_of_a_region(name, context):
    inside, without = LEFT_OUT[name]
    without = without or (lambda w, c: unrolled(name, w, c))
    selected, wanted = CONTEXTS[context]
    one = np.float64(1)
    for order in 1, 2, 3:
        got = hl.jit(derivative(lambda w: selected(inside, w), order))(one)
        assert np.isclose(float(got), float(derivative(lambda w: wanted(without, w), order)(one)), rtol=1e-9), order


def test_lanes_of_a_loop_that_have_finished():
    def end(step, w):
        return hl.vmap(lambda x: hl.while_loop(lambda c: c < 0.9, lambda c: c - 0.1 * step(w, c), x, max_steps=20))(POINTS).sum()

    one = np.float64(1)
    for order in 1, 2, 3:
        wanted = float(derivative(lambda w: end(product, w), order)(one))
        assert np.isfinite(wanted)
        for step in hl.checkpoint(product), with_a_rule:
            assert np.isclose(float(derivative(lambda w, step=step: end(step, w), order)(one)), wanted, rtol=1e-9)


# At 0 each is x^3 by the branch that is taken.
BRANCHES = {
    "cond": lambda x: hl.cond(x != 0, lambda x: 1 / x, lambda x: x**3, x),
    "cond of captures": lambda x: hl.cond(x != 0, lambda: 1 / x, lambda: x**3),
    "root": lambda x: hl.cond(x > 0, hl.sqrt, lambda x: x**3, x),
    "switch": lambda x: hl.switch((x > 0).astype(hl.int32), [lambda x: x**3, hl.sqrt, lambda x: 1 / x], x),
    "while": lambda x: hl.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, 1 / c[1] + 1 / x), (x, x**3), max_steps=3)[1],
    "checkpoint": hl.checkpoint(lambda x: hl.cond(x != 0, lambda x: 1 / x, lambda x: x**3, x)),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_third_derivatives_of_branches(name):
    third = derivative(BRANCHES[name], 3)
    assert np.isclose(float(hl.jit(third)(np.float64(0))), 6)
    np.testing.assert_allclose(hl.jit(hl.vmap(third))(np.zeros(2)), [6, 6])
