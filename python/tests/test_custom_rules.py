"""Rules that call their own function: derivatives of any order, whatever the rule uses of its surroundings."""

import itertools
import threading

import hotloop as hl
import numpy as np
import pytest


def steps(values, tangent_of):
    """A function that is `values` and has the derivative y' = tangent_of(x, y), as no differentiation of it finds."""

    @hl.custom_jvp
    def f(x):
        return values(x)

    @f.defjvp
    def _(primals, tangents):
        y = f(primals[0])
        return y, tangents[0] * tangent_of(primals[0], y)

    return f


def forward(f):
    return lambda x: hl.jvp(f, (x,), (hl.ones_like(x),))[1]


def derivatives(x, y, orders):
    """Of y' = 1 + x y."""
    all_of = [y, 1 + x * y]
    for k in range(1, orders):
        all_of.append(x * all_of[k] + k * all_of[k - 1])
    return all_of


@pytest.mark.parametrize("modes", list(itertools.product((hl.grad, forward), repeat=4)))
def test_any_order_in_both_modes(modes):
    f, x = steps(lambda x: hl.floor(x * 3) / 3, lambda x, y: 1 + x * y), np.float64(0.7)
    for mode, wanted in zip(modes, derivatives(0.7, 2 / 3, 4)[1:]):
        f = mode(f)
        assert float(hl.jit(f)(x)) == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(hl.vmap(f)(np.array([0.7, 0.7])), [wanted] * 2, rtol=1e-12)


def test_of_a_rule_in_reverse_mode():
    @hl.custom_vjp
    def f(x):
        return hl.floor(x * 3) / 3

    f.defvjp(lambda x: ((y := f(x)), (x, y)), lambda kept, ct: (ct * (1 + kept[0] * f(kept[0])),))
    g = f
    for wanted in derivatives(0.7, 2 / 3, 4)[1:]:
        g = hl.grad(g)
        assert float(g(np.float64(0.7))) == pytest.approx(wanted, rel=1e-12)


def test_what_a_rule_uses_of_its_surroundings():
    """Traced values, one of a loop's body among them, and a large array."""
    table = np.linspace(0.5, 1.5, 100)

    def third(x, scale):
        def body(carry, t):
            f = steps(lambda v: hl.floor(v * 3) / 3, lambda v, y: scale * t + y * hl.mean(v * table))
            return carry + hl.grad(hl.grad(hl.grad(f)))(x), None

        return hl.scan(body, hl.zeros_like(x), np.arange(1.0, 4.0))[0]

    def wanted(x, scale):
        y, total = np.floor(x * 3) / 3, 0.0
        for t in (1.0, 2.0, 3.0):
            first = scale * t + x * y
            total += x * (x * first + y) + 2 * first
        return total

    x, scale = np.float64(0.7), np.float64(1.3)
    assert float(hl.jit(third)(x, scale)) == pytest.approx(wanted(0.7, 1.3), rel=1e-12)
    assert float(third(x, scale)) == pytest.approx(wanted(0.7, 1.3), rel=1e-12)
    # The rule ignores tangents of its surroundings.
    batch = hl.vmap(third, in_axes=(0, 0))(np.array([0.7, 0.4]), np.array([1.3, -0.5]))
    np.testing.assert_allclose(batch, [wanted(0.7, 1.3), wanted(0.4, -0.5)], rtol=1e-12)


def test_numbers_of_the_surroundings_fill_arrays():
    """The loop's body is over when the rule is traced again."""

    def total(x, scale):
        def body(carry, t):
            f = steps(lambda v: hl.floor(v * 3) / 3, lambda v, y: hl.sum(hl.full((2,), scale * t, dtype="float64") + hl.pad(y[None], (0, 1), constant_values=t)) / 2)
            return carry + f(x), None

        return hl.scan(body, hl.zeros_like(x), np.arange(1.0, 4.0))[0]

    wanted = sum((1.3 * t + (2 / 3 + t) / 2) / 2 for t in (1.0, 2.0, 3.0))  # y'' = y' / 2, of y' = scale t + (y + t) / 2
    assert float(hl.jit(hl.grad(hl.grad(total)))(np.float64(0.7), np.float64(1.3))) == pytest.approx(wanted, rel=1e-12)


def test_two_functions_in_each_others_rules():
    """As sine and cosine are, of step functions."""

    @hl.custom_jvp
    def up(x):
        return hl.floor(x)

    @hl.custom_jvp
    def down(x):
        return -hl.floor(x) + 3

    up.defjvp(lambda p, t: (up(p[0]), t[0] * down(p[0])))
    down.defjvp(lambda p, t: (down(p[0]), -t[0] * up(p[0])))
    f, wanted = up, [2.0, 1.0, -2.0, -1.0, 2.0, 1.0]
    for w in wanted:
        assert float(f(np.float64(2.5))) == w
        f = hl.grad(f)


def test_a_root_has_derivatives_of_any_order():
    """x = a / x by an unbounded loop: the rule says what its derivative is, so no order needs the loop's own."""

    @hl.custom_jvp
    def root(a):
        return hl.while_loop(lambda x: hl.abs(x * x - a) > 1e-13, lambda x: 0.5 * (x + a / x), 1.0 + 0 * a)

    @root.defjvp
    def _(primals, tangents):
        x = root(primals[0])
        return x, tangents[0] / (2 * x)

    f, wanted, power = root, 1.0, 0.5
    for _ in range(4):
        f, wanted, power = hl.grad(f), wanted * power, power - 1
        assert float(f(np.float64(2.0))) == pytest.approx(wanted * 2.0**power, rel=1e-11)


WRAPPERS = {
    "checkpoint": hl.checkpoint,
    "scan": lambda f: lambda x: hl.scan(lambda c, _: (f(c), None), x, length=1)[0],
    "cond": lambda f: lambda x: hl.cond(x > -9.0, f, lambda x: x, x),
    "both": lambda f: hl.checkpoint(lambda x: hl.scan(lambda c, _: (hl.checkpoint(f)(c), None), x, length=2)[0]),
}


@pytest.mark.parametrize("of_tangents", [True, False])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_steps_that_differ_in_their_rules_alone(wrapper, of_tangents):
    """They compute the same, so that the rule of one, in whatever it is wrapped, is easily taken for that of all."""

    def step(k):
        if of_tangents:
            f = hl.custom_jvp(lambda x: hl.sin(x))
            f.defjvp(lambda p, t: (f(p[0]), k * t[0]))
        else:
            f = hl.custom_vjp(lambda x: hl.sin(x))
            f.defvjp(lambda x: (hl.sin(x), ()), lambda kept, ct: (k * ct,))
        return WRAPPERS[wrapper](f)

    wrapped = [step(k) for k in np.arange(1.0, 9.0)]

    def chain(x):
        for f in wrapped:
            x = f(x)
        return x

    wanted, x = float(np.prod(np.arange(1.0, 9.0))) ** (2 if wrapper == "both" else 1), np.float64(0.1)
    assert float(hl.grad(chain)(x)) == pytest.approx(wanted, rel=1e-12)
    assert float(hl.jit(hl.vjp(chain, x)[1])(np.float64(2.0))[0]) == pytest.approx(2 * wanted, rel=1e-12)
    assert float(hl.jacobian(chain)(x).dense()) == pytest.approx(wanted, rel=1e-12)
    if of_tangents:
        assert float(forward(chain)(x)) == pytest.approx(wanted, rel=1e-12)


def test_threads_trace_rules_side_by_side():
    f = steps(lambda x: hl.floor(x * 3) / 3, lambda x, y: 1 + x * y)
    third, got = hl.grad(hl.grad(hl.grad(f))), []

    def work():
        for _ in range(20):
            got.append(float(hl.jit(lambda x: third(x) * 1.0)(np.float64(0.7))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_allclose(got, [derivatives(0.7, 2 / 3, 3)[3]] * 80, rtol=1e-12)


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
def test_functions_in_functions_are_not_traced_twice_a_level(mode):
    counts = []
    for depth in (4, 8):
        calls = []

        def innermost(x, calls=calls):
            calls.append(x)
            return hl.sin(x)

        f = innermost
        for _ in range(depth):

            def around(x, inner=f):
                return 1.5 * inner(x)

            if mode == "jvp":
                g = hl.custom_jvp(around)
                g.defjvp(lambda p, t, g=g: (g(*p), t[0] * g(*p)))
            else:
                g = hl.custom_vjp(around)
                g.defvjp(lambda x, inner=f: ((1.5 * inner(x)), inner(x)), lambda kept, ct: (ct * 1.5 * kept,))
            f = g
        value = hl.jit(lambda x: f(x) * 1.0)(np.float64(0.5))  # noqa: B023
        assert float(value) == pytest.approx(1.5**depth * np.sin(0.5), rel=1e-12)
        counts.append(len(calls))
        assert float(hl.grad(f)(np.float64(0.5))) == pytest.approx(1.5**depth * np.sin(0.5), rel=1e-12)
    assert counts[1] <= 5 * counts[0]


def test_a_rule_within_a_rule_uses_its_surroundings():
    """Of derivatives of all orders, one of the inner function being called in its rule alone."""

    def total(x, scale):
        def body(carry, t):
            inner = steps(lambda v: hl.floor(v * 3) / 3, lambda v, y: scale * t + y)
            outer = steps(lambda v: hl.floor(v * 3) / 3 + 1, lambda v, y: y * inner(v) * t)
            around = steps(lambda v: inner(v) * outer(v), lambda v, y: y * inner(v) + outer(v))
            return carry + outer(x) + around(x) * hl.grad(around)(x), None

        return hl.scan(body, hl.zeros_like(x), np.arange(1.0, 4.0))[0]

    def wanted(x, scale):
        found = 0.0
        for t in (1.0, 2.0, 3.0):
            i, o = np.floor(x * 3) / 3, np.floor(x * 3) / 3 + 1
            di, do, a = scale * t + i, o * i * t, i * o
            ddo = t * (do * i + o * di)
            da = a * i + o
            dda = da * i + a * di + do
            ddda = dda * i + 2 * da * di + a * di + ddo  # di' = di
            found += ddo + (3 * da * dda + a * ddda)
        return found

    second = hl.grad(hl.grad(total))
    for f in (second, hl.jit(second), lambda x, scale: forward(forward(lambda x: total(x, scale)))(x)):
        assert float(f(np.float64(0.7), np.float64(1.3))) == pytest.approx(wanted(0.7, 1.3), rel=1e-12)


def test_a_rule_and_a_body_with_derivatives_of_other_functions():
    """Of which the rules use the surroundings."""

    def total(x, scale, in_body):
        def body(carry, t):
            inner = steps(lambda v: hl.floor(v * 3) / 3, lambda v, y: scale * t + y)
            slope = hl.grad(inner)
            outer = steps(slope, lambda v, y: y * t) if in_body else steps(inner, lambda v, y: y * slope(v))
            return carry + outer(x), None

        return hl.scan(body, hl.zeros_like(x), np.arange(1.0, 4.0))[0]

    for in_body in (False, True):
        f, found = hl.jit(total, static_argnames="in_body"), []
        for _ in range(3):
            found.append(float(f(np.float64(0.7), np.float64(1.3), in_body=in_body)))
            f = hl.grad(f)
        i, wanted = 2 / 3, [0.0, 0.0, 0.0]
        for t in (1.0, 2.0, 3.0):
            slope = 1.3 * t + i
            # y = i', y' = t y, y'' = t y'; y = i, y' = y i', y'' = y' i' + y i''
            of_this = (slope, t * slope, t * t * slope) if in_body else (i, i * slope, i * slope * slope + i * slope)
            wanted = [w + o for w, o in zip(wanted, of_this)]
        assert found == pytest.approx(wanted, rel=1e-12)
