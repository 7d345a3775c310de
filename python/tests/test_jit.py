"""Compiled functions: what is compiled when, errors, threads, interruption."""

import dataclasses
import gc
import platform
import random
import sys
import threading
import time
import weakref

import hotloop as hl
import numpy as np
import pytest
from hotloop import _core


def test_a_program_for_each_combination_of_types(rng):
    f = hl.jit(lambda x: x * 2)
    for x in (np.ones(3, np.float32), np.zeros(3, np.float32), np.ones(4, np.float32), np.ones(3), hl.ones(3), 1.0, 2.0, 3):
        assert np.array_equal(f(x), np.asarray(x) * 2)
    assert _core.num_specializations(f) == 5


def test_retraces_are_told():
    hl.logs.compilations.clear()
    f = hl.jit(lambda x, n: x + n)
    f(np.ones(3, np.float32), 1.0)
    f(np.ones(4, np.float32), 1.0)
    f(np.ones(4, np.float32), np.float32(1.0))
    reasons = [c.reason for c in hl.logs.compilations]
    assert reasons[0] == "first call"
    assert reasons[1] == "argument [0][0]: f32[3] before, now f32[4]"
    assert [c.arguments for c in hl.logs.compilations] == ["f32[3], number", "f32[4], number", "f32[4], f32[]"]


def test_classes_and_their_programs_are_collected():
    def of_a_dataclass():
        @dataclasses.dataclass
        class Net:
            w: object

            @hl.jit
            def __call__(self, x):
                return dataclasses.replace(self, w=self.w * x)

        Net(np.ones(3))(np.ones(3))
        return Net

    def of_a_static_object():
        class Net:
            @hl.jit(static_argnums=0)
            def __call__(self, x):
                return x

        Net()(np.ones(3))
        return Net

    def of_the_end():
        class Net:
            @hl.jit(static_argnums=0)
            def __call__(self, x):
                return x

            def __del__(self):
                ends.append(self(1.0))

        net = Net()
        net.itself = net
        net(2.0)
        return Net

    def of_bound_arguments():
        @dataclasses.dataclass
        class Weights:
            w: object

        Weights.first = _core.bound_jit(lambda p, x: p.w * x, "f", Weights(np.ones(3)), _core.options())
        Weights.first(2.0)
        Weights.second = _core.rebound_jit(Weights.first, Weights(np.zeros(3)))
        return Weights

    ends = []
    alive = [weakref.ref(make()) for make in (of_a_dataclass, of_a_static_object, of_the_end, of_bound_arguments)]
    gc.collect()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 4 and ends == [1]


def test_closures_are_kept_as_they_were():
    big = np.ones(1000, np.float32)
    f = hl.jit(lambda x: (x * big).sum())
    assert float(f(np.float32(1))) == 1000
    big[:] = 2
    assert float(f(np.float32(2))) == 2000
    text = hl.executable(f, np.float32(1)).graph_text()
    assert len(text) < 2000  # the array is an argument of the program, not a part of it


@pytest.mark.parametrize("size", [64, 65, 1000])
@pytest.mark.parametrize("kind", ["array", "list", "rows", "Array"])
def test_memory_that_is_used_again_is_read_at_each_use(size, kind):
    """A buffer of NumPy's, or a list, that the function fills anew for each use."""
    buffer, numbers = np.zeros(size, np.float32), [0.0] * size
    given = {"array": buffer, "list": numbers, "rows": [buffer, buffer], "Array": hl.asarray(buffer)}[kind]

    def f(x):
        total = 0.0
        for k in range(3):
            buffer[:] = numbers[:] = np.sin(k * np.arange(size, dtype=np.float32)).tolist()
            total = total + (k + 1) * hl.sum(hl.multiply(x, given))
        return total if kind != "rows" else total / 2

    wanted = sum((k + 1) * float(np.sin(k * np.arange(size, dtype=np.float32)).sum()) for k in range(3))
    assert float(hl.jit(f)(np.ones(size, np.float32))) == pytest.approx(wanted, abs=1e-3)


def test_equal_arrays_around_a_function_are_one_input():
    table = np.random.default_rng(0).random(100, np.float32)

    def f(x):
        return x * table + hl.sin(x * table.copy()) + hl.cos(x * hl.asarray(table))

    text = hl.executable(f, np.float32(1)).graph_text()
    assert "captured0" in text and "captured1" not in text


def test_the_same_value_twice_and_arguments_as_results():
    f = hl.jit(lambda x, y: (x, y, x, x + y, x + y, 7))
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    results = f(x, y)
    x[:] = 0  # results are no views of arguments
    assert [np.asarray(r).tolist() for r in results] == [[1, 2], [3, 4], [1, 2], [4, 6], [4, 6], 7]


def test_methods_and_nesting():
    class Model:
        def __init__(self):
            self.scale = 3.0

        @hl.jit(static_argnums=0)
        def apply(self, x):
            return self.scale * x

    inner = hl.jit(lambda x: x + 1)
    assert float(Model().apply(2.0)) == 6
    assert float(hl.jit(lambda x: inner(inner(x)))(1.0)) == 3


def test_data_dependent_control_flow_says_what_to_use():
    def f(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(hl.UserError, match="hl.where.*hl.cond, hl.while_loop"):
        hl.jit(f)(np.ones(3))
    with pytest.raises(hl.UserError, match="static argument"):
        hl.jit(lambda n: hl.zeros(int(n)))(3)


def test_leaked_tracer():
    kept = []
    hl.jit(lambda x: kept.append(x) or x)(1.0)
    with pytest.raises(hl.UserError, match="a value kept from an earlier trace"):
        hl.jit(lambda x: x + kept[0])(1.0)
    with pytest.raises(hl.UserError, match="a value kept from an earlier trace"):
        kept[0] + 1


@pytest.mark.parametrize("call, message", [
    (lambda: hl.jit(lambda x: x)("text"), "[<lambda>] argument [0][0] must be an array or a number. Received: a str. Try: name it in static_argnames, if the function is to be compiled for its value."),
    (lambda: hl.jit(lambda x: "text")(1.0), "[<lambda>] a compiled function must return arrays, in dicts, lists, tuples or dataclasses. Received: result = a str. Try: leave it out of what the function returns."),
    (lambda: hl.jit(lambda x, n: x, static_argnums=-3), "[jit] static_argnums must be positions of the function's 2 parameters. Received: -3. Try: their names."),
    (lambda: hl.jit(lambda x, n: x, static_argnums=(1, 5)), "[jit] static_argnums must be positions of the function's 2 parameters. Received: 5. Try: their names."),
    (lambda: hl.jit(lambda *a: a, static_argnums=-1), "[jit] static_argnums of a function that takes any number of arguments must be counted from the first. Received: -1."),
    (lambda: hl.jit(lambda x, n: x, static_argnums=1.0), "[jit] a position in static_argnums must be an integer. Received: 1.0."),
    (lambda: hl.jit(lambda x, n: x, static_argnums=None), "[jit] a position in static_argnums must be an integer. Received: None."),
    (lambda: hl.jit(lambda x, n: x, static_argnames=1), "[jit] static_argnames must be parameters of the function. Received: 1. Try: one of ['n', 'x']."),
    (lambda: hl.jit(lambda x, n: x, donate=2), "[jit] donate must be positions of the function's 2 parameters. Received: 2. Try: their names."),
    (lambda: hl.jit(lambda x: x, static_argnames="y"), "[jit] static_argnames must be parameters of the function. Received: 'y'. Try: one of ['x']."),
    (lambda: hl.jit(3), "[jit] what is compiled must be a function. Received: an int. Try: lambda x: ..."),
    (lambda: hl.jit(lambda x: x, threads=-1), "[jit] threads must be None, 0, or a number of cores. Received: -1. Try: 0 for all cores."),
    (lambda: hl.jit(lambda x: x, device=3), "[jit] device must be a string. Received: 3."),
    (lambda: hl.jit(lambda x: x, device="cuda", backend="c")(1.0), "[compile] device cuda takes neither dispatch nor backend nor target. Received: fused, c, host. Try: leave them out."),
    (lambda: hl.jit(lambda x: x, backend=None), "[jit] backend must be a string. Received: None."),
    (lambda: hl.jit(lambda x: x, keep_source=1), "[jit] keep_source must be True or False. Received: 1."),
    (lambda: hl.jit(lambda x: x, flush_denormals="yes"), "[jit] flush_denormals must be True or False. Received: 'yes'."),
    (lambda: hl.jit(lambda x: x, dot_precision=np.float32), "[jit] dot_precision must be a string. Received: <class 'numpy.float32'>."),
    (lambda: hl.add(np.ones(3), np.ones(4)), "[add] shapes must broadcast: from the last axis on, extents are equal or 1. Received: f64[3], f64[4]. Try: reshape() or expand_dims() an operand."),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises(hl.UserError) as error:
        call()
    assert str(error.value) == message


def test_exceptions_of_the_function_come_through():
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        hl.jit(f)(1.0)
    assert float(hl.jit(lambda x: x + 1)(1.0)) == 2  # tracing ended properly


def test_functions_are_collected():
    class Marker:
        pass

    def make():
        marker = Marker()
        f = hl.jit(lambda x: x + len([marker]))
        f(1.0)
        f.self = f  # a cycle
        return weakref.ref(marker)

    gone = make()
    gc.collect()
    assert gone() is None


def long_loop(n):
    def body(c):
        i, x = c
        return i + 1, hl.sin(x) + 1e-3

    return hl.jit(lambda x: hl.while_loop(lambda c: c[0] < n, body, (0, x))[1])


def test_the_gil_is_released_and_threads_agree():
    f = long_loop(2_000_000)
    x = np.linspace(0, 1, 8)
    wanted = np.asarray(f(x))
    ticks, results = [], []
    worker = threading.Thread(target=lambda: results.append(np.asarray(f(x))))
    start = time.perf_counter()
    worker.start()
    while worker.is_alive():
        ticks.append(time.perf_counter() - start)
        time.sleep(0.001)
    worker.join()
    assert len(ticks) > 5  # this thread ran while the kernel did
    assert np.array_equal(results[0], wanted)


def test_concurrent_first_calls():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads meet between any two steps of a call
    try:
        for added in range(60):  # each a program that was not compiled before
            f = hl.jit(lambda x, added=added: hl.exp(x).sum() + float(added))
            results = []
            call = lambda k, f=f, results=results: results.append((k, float(f(np.full(k % 3 + 1, 0.0)))))  # noqa: E731
            threads = [threading.Thread(target=call, args=(k,)) for k in range(12)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert sorted(results) == [(k, k % 3 + 1.0 + added) for k in range(12)]
    finally:
        sys.setswitchinterval(before)


def test_ctrl_c_ends_a_kernel(interrupt_after):
    f = long_loop(2_000_000_000)
    x = np.linspace(0, 1, 8)
    hl.executable(f, x)
    sent = []
    interrupt_after(0.3, sent)
    with pytest.raises(KeyboardInterrupt):
        f(x)
    assert time.perf_counter() - sent[0] < 2  # 0.1 s on a free machine; here what matters is that it ends
    assert float(hl.jit(lambda v: v + 1)(1.0)) == 2  # and that later calls run


def ends_early(f, x, interrupt_after):
    """Ctrl-C after 0.1 s ends f(x) long before it would be done: by processor time, which other programs do not lengthen."""
    start = time.process_time()
    f(x)
    whole = time.process_time() - start
    assert whole > 0.4, "too short a call to tell"
    start = time.process_time()
    interrupt_after(0.1, [])
    with pytest.raises(KeyboardInterrupt):
        f(x)
    assert time.process_time() - start < 0.1 + 0.5 * (whole - 0.1)


def test_ctrl_c_ends_a_long_product(interrupt_after):
    """One product of matrices, without a loop around it."""
    ends_early(hl.jit(lambda a: a @ a), np.ones((5000, 5000), np.float32), interrupt_after)


@pytest.mark.parametrize("reduced", [False, True])
def test_ctrl_c_ends_a_long_map(interrupt_after, reduced):
    """One statement over many elements, without a loop around it."""

    def waves(x):
        for _ in range(80):
            x = hl.sin(x * 1.5)
        return x.sum() if reduced else x

    ends_early(hl.jit(waves, threads=1), np.ones(30_000_000, np.float32), interrupt_after)


def test_ctrl_c_ends_a_compilation(interrupt_after):
    def long(x):
        which = random.Random(1)  # steps that are no loop
        for i in range(1500):
            x = hl.tanh(x * (1 + 0.001 * i)) + (hl.sin(x[::-1]) if which.random() < 0.5 else hl.cos(x))
        return x

    sent = []
    interrupt_after(1, sent)
    with pytest.raises(KeyboardInterrupt):
        hl.jit(long)(np.ones(16, np.float32))
    assert time.perf_counter() - sent[0] < 2  # some milliseconds on a free machine; the whole compilation takes many seconds
    assert float(hl.jit(lambda v: v + 2)(1.0)) == 3


def test_explain_names_the_program():
    def activity(x):
        return hl.tanh(x).sum()

    f = hl.jit(activity)
    text = hl.explain(f, np.ones(8, np.float32))
    assert "activity: 1 input, 1 output" in text and "16 flop" in text and "36 B of inputs and outputs" in text and "not run yet" in text
    f(np.ones(8, np.float32))
    assert "measured    1 call" in hl.explain(f, np.ones(8, np.float32))


def test_profile_says_that_denormals_came_up():
    x = np.full(1000, 1e-30, np.float32)

    def fn(a):
        return a * 1e-10 * a  # 1e-40 before the second product

    assert hl.profile(hl.jit(fn), x).met_denormals == (platform.machine() == "x86_64")
    assert not hl.profile(hl.jit(fn), x * 1e10).met_denormals
    flushed = hl.profile(hl.jit(fn, flush_denormals=True), x)
    assert not flushed.met_denormals and "denormals" not in str(flushed)


def test_profile_tells_where_the_time_goes(rng):
    """Every argument kind that a call may have, bound ones too; nothing is consumed."""
    weights, x = {"w": rng.normal(size=(8, 8)).astype(np.float32)}, rng.normal(size=(5, 3, 8)).astype(np.float32)
    fn = lambda p, x, scale, power: hl.scan(lambda h, a: (hl.tanh(h @ p["w"] + a) * scale, None), hl.zeros((3, 8)), x)[0] ** power  # noqa: E731
    profile = hl.profile(fn, weights, x, 0.5, power=2)
    assert sum(s.flops for s in profile.statements) == 2 * 5 * 3 * 8 * 8
    assert any(s.runs == 5 and "3 x 8 of 8" in s.statement for s in profile.statements)
    assert sum(s.time_us for s in profile.statements) == pytest.approx(profile.call_us)
    assert profile.num_calls >= 3 and profile.without_clocks_us > 0
    assert "without the clocks" in str(profile) and max(map(len, str(profile).splitlines())) <= 80

    kept = hl.asarray(x, copy=True)
    hl.profile(hl.jit(lambda a: a * 2, donate="a"), kept)
    np.testing.assert_array_equal(np.asarray(kept), x)
    with pytest.raises(hl.UserError, match=r"must be one kernel of the llvm backend. Received: dispatch per_op"):
        hl.profile(hl.jit(fn, dispatch="per_op", static_argnames="power"), weights, x, 0.5, power=2)


def test_op_by_op_dispatch(rng):
    """The same numbers from one kernel an op, which explain() counts."""
    x, w = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)
    fn = lambda x, w: hl.scan(lambda h, a: (hl.tanh(h * 0.5 + a), h), hl.zeros(5), x @ w)  # noqa: E731
    fused, per_op = hl.jit(fn), hl.jit(fn, dispatch="per_op")
    for a, b in zip(fused(x, w), per_op(x, w)):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    text = " ".join(hl.explain(per_op, x, w).split())
    assert "5 kernels, one an op" in text and "14 launches a call" in text  # zeros, dot; mul, add and tanh, four times
    with pytest.raises(hl.UserError, match="dispatch must be one of fused, per_op. Received: 'ops'"):
        hl.jit(fn, dispatch="ops")(x, w)


def test_constants_of_rows_are_each_rows():
    """Rows so wide that a tile has one of them: a constant with a number a row is not the first one's."""
    scales = np.arange(1, 5, dtype=np.float32)
    x = np.linspace(0, 1, 4 * 100_000, dtype=np.float32).reshape(4, -1)
    y = np.asarray(hl.jit(lambda x: hl.tanh(x) * scales[:, None])(x))
    assert y.dtype == np.float32 and y.shape == x.shape
    np.testing.assert_allclose(y, np.tanh(x) * scales[:, None], rtol=1e-6, atol=1e-6)
