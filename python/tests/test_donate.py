"""donate=: arrays that a call takes over, what becomes of them, and who may not give them."""

import copy
import threading

import hotloop as hl
import numpy as np
import pytest


def step(params, state, x):
    gradient = hl.grad(lambda p: hl.mean(hl.tanh(x @ p["w"] + p["b"]) ** 2))(params)
    state = {k: 0.9 * state[k] + gradient[k] for k in state}
    return {k: params[k] - 0.1 * state[k] for k in params}, state


def start(rng):
    params = {"w": hl.asarray(rng.normal(size=(30, 20)).astype(np.float32), copy=True), "b": hl.zeros(20)}
    return params, {k: hl.zeros(v.shape) for k, v in params.items()}, rng.normal(size=(50, 30)).astype(np.float32)


@pytest.mark.parametrize("donate", [("params", "state"), (0, 1), "params", -3])
def test_results_take_over_the_memory(rng, donate):
    params, state, x = start(rng)
    expected = hl.jit(step)(params, state, x)
    before = {k: v._address for k, v in params.items()}
    f = hl.jit(step, donate=donate)
    assert "in place of input 0" in hl.explain(f, params, state, x).replace("\n" + " " * 12, " ")
    for given, wanted in zip(hl.tree.leaves(f(params, state, x)), hl.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(given, wanted)
    assert all(v.is_donated for v in params.values())
    assert all(v.is_donated is (donate in (("params", "state"), (0, 1))) for v in state.values())
    params, state, x = start(rng)
    before = sorted(v._address for v in params.values())
    params, state = f(params, state, x)
    assert sorted(v._address for v in params.values()) == before


def test_a_loop_by_hand(rng):
    """The same memory from the first step to the last, by position and by keyword."""
    params, state, x = start(rng)
    expected = params, state
    for _ in range(5):
        expected = hl.jit(step)(*expected, x)
    f = hl.jit(step, donate=("params", "state"))
    at = [v._address for v in hl.tree.leaves((params, state))]
    for i in range(5):
        params, state = f(params, state, x) if i % 2 else f(params, x=x, state=state)
    assert sorted(v._address for v in hl.tree.leaves((params, state))) == sorted(at)
    for given, wanted in zip(hl.tree.leaves((params, state)), hl.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(given, wanted)


def donated():
    x = hl.ones(3)
    hl.jit(lambda x: x * 2, donate=0)(x)
    return x


USES = {
    "numpy": np.asarray,
    "item": lambda x: x.tolist(),
    "float": float,
    "index": lambda x: x[0],
    "operator": lambda x: x + 1,
    "function": hl.sin,
    "jit": lambda x: hl.jit(lambda v: v + 1)(x),
    "again": lambda x: hl.jit(lambda v: v + 1, donate=0)(x),
    "closure": lambda x: hl.jit(lambda v: v + x)(1.0),
    "copy": copy.deepcopy,
    "memory": memoryview,
    "dlpack": np.from_dlpack,
    "interface": lambda x: x.__array_interface__,
    "asarray": hl.asarray,
    "cast": lambda x: hl.asarray(x, dtype=hl.float64),
    "equality": lambda x: x == x,
    "iteration": list,
    "bool": lambda x: bool(x),
    "bound": lambda x: hl.jit(lambda v, w: v @ w)(x, np.ones(3, np.float32)),
}


@pytest.mark.parametrize("use", USES)
def test_any_use_of_what_was_donated_raises(use):
    with pytest.raises((hl.UserError, BufferError), match=r"\[Array\] .*donated"):
        USES[use](donated())


def test_what_is_left_of_a_donated_array():
    x = donated()
    assert x.is_donated and x.shape == (3,) and x.dtype == np.float32
    assert repr(x) == "Array(donated, shape=(3,), dtype=float32)"


def test_only_what_nobody_else_views(rng):
    f = hl.jit(lambda x: x * 2, donate="x")
    torch_like = np.from_dlpack
    views = {
        "numpy": lambda x: np.asarray(x),
        "buffer": memoryview,
        "slice": lambda x: np.asarray(x)[1:],
        "dlpack": torch_like,
        "part": lambda x: x[1:],
        "numpy method": lambda x: x.numpy(),
    }
    for name, view in views.items():
        x = hl.arange(4, dtype=hl.float32)
        kept = view(x)
        with pytest.raises(hl.UserError, match=r"donated argument .* must be a hotloop.Array that nothing else views. Received: .*asarray\(x, copy=True\)"):
            f(x)
        assert not x.is_donated, name
        del kept
        np.testing.assert_array_equal(f(x), [0, 2, 4, 6])
    x = hl.ones(2)
    assert x.__array_interface__["shape"] == (2,)  # whoever reads it keeps the array itself, and no view
    with pytest.raises(hl.UserError, match="views"):
        f(x)


def test_memory_of_others_is_not_donated():
    f = hl.jit(lambda x: x * 2, donate="x")
    for foreign in (np.ones(3, np.float32), hl.asarray(np.ones(3, np.float32)), [np.ones(2)]):
        with pytest.raises(hl.UserError, match="whose memory is"):
            f(foreign) if not isinstance(foreign, list) else hl.jit(lambda x: x[0] * 2, donate="x")(foreign)
    assert float(f(2.0)) == 4  # a number has no memory


def test_all_or_nothing():
    f = hl.jit(lambda a, b: (a + 1, b + 1), donate=(0, 1))
    a, b = hl.ones(3), hl.asarray(np.ones(3, np.float32))
    with pytest.raises(hl.UserError, match="donated argument"):
        f(a, b)
    assert not a.is_donated
    with pytest.raises(hl.UserError, match="given once"):
        f(a, a)
    with pytest.raises(hl.UserError, match="given once"):
        hl.jit(lambda a, b: a + b, donate=0)(a, a)
    assert not a.is_donated


def test_arrays_a_program_keeps_are_not_donated():
    table = hl.asarray(np.ones(5000, np.float32), copy=True)
    kept = hl.jit(lambda x: x + table)
    kept(1.0)
    with pytest.raises(hl.UserError, match="kept by a compiled function"):
        hl.jit(lambda x: x * 2, donate=0)(table)
    np.testing.assert_array_equal(kept(1.0), np.full(5000, 2.0))


def test_a_call_without_memory_for_its_results_takes_nothing():
    x = hl.ones(3)
    with pytest.raises(MemoryError, match=r"^\[memory\] .* must fit the memory. Received: f32\[4398046511104\], 17.6 TB. Try: "):
        hl.jit(lambda x: (x * 2, hl.broadcast_to(x.sum(), (1 << 42,))), donate=0)(x)
    assert not x.is_donated
    np.testing.assert_array_equal(x, np.ones(3))


def test_copies_outlive_a_donation():
    x = hl.ones(3)
    twins = copy.copy(x), copy.deepcopy(x)
    hl.jit(lambda x: x * 2, donate=0)(x)
    for twin in twins:
        np.testing.assert_array_equal(twin, [1, 1, 1])


def test_what_no_result_takes_is_free_after_the_call():
    x = hl.asarray(np.ones((300, 300), np.float32), copy=True)
    f = hl.jit(lambda x: hl.flip(x, axis=0) * 300, donate=0)
    assert "free after the call" in hl.explain(f, x).replace("\n" + " " * 12, " ")
    np.testing.assert_array_equal(f(x), np.full((300, 300), 300))
    assert x.is_donated


def test_inside_a_trace_nothing_is_donated():
    f = hl.jit(lambda x: x * 2, donate=0)
    x = hl.ones(3)
    np.testing.assert_array_equal(hl.jit(lambda v: f(v) + v)(x), [3, 3, 3])
    np.testing.assert_array_equal(hl.grad(lambda v: f(v).sum())(x), [2, 2, 2])
    assert not x.is_donated


def test_a_running_call_keeps_what_it_reads():
    """One thread reads an array without the GIL while another would donate it."""
    x = hl.asarray(np.linspace(0, 1, 64, dtype=np.float32), copy=True)
    slow = hl.jit(lambda v: hl.scan(lambda c, _: (hl.tanh(c + v), None), hl.zeros(64), None, length=300_000)[0])
    take = hl.jit(lambda v: v * 0, donate=0)
    hl.executable(slow, x), hl.executable(take, x)
    expected = np.asarray(slow(x)).copy()
    results = []
    thread = threading.Thread(target=lambda: results.append(np.asarray(slow(x)).copy()))
    thread.start()
    refused = 0
    while thread.is_alive():
        try:
            take(x)
            break
        except hl.UserError:
            refused += 1
    thread.join()
    np.testing.assert_array_equal(results[0] if results else expected, expected)


def test_ctrl_c_in_a_donating_call(interrupt_after):
    import signal

    def long(x):
        return hl.scan(lambda c, _: (hl.tanh(c * 1.0001), None), x, None, length=length)[0]

    length, sent = 2_000_000_000, []
    f = hl.jit(long, donate=0)
    x = hl.ones(64)
    hl.executable(f, x)
    interrupt_after(0.3, sent)
    with pytest.raises(KeyboardInterrupt):
        f(x)
    assert x.is_donated
    # A handler that raises nothing waits for the end of the call, which nobody could begin again.
    length, heard = 20_000_000, []
    f, x = hl.jit(lambda x: long(x), donate=0), hl.ones(64)
    expected = hl.jit(lambda x: long(x))(x)
    hl.executable(f, x)
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        interrupt_after(0.05, sent)
        np.testing.assert_array_equal(f(x), expected)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard


def test_bad_names():
    with pytest.raises(hl.UserError, match="donate must be parameters of the function. Received: 'q'"):
        hl.jit(lambda x: x, donate="q")
    with pytest.raises(hl.UserError, match="static or donated, not both"):
        hl.jit(lambda x, n: x * n, static_argnames="n", donate=1)
    with pytest.raises(hl.UserError, match="names or numbers"):
        hl.jit(lambda x: x, donate=(1.5,))
