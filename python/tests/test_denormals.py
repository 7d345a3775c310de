"""flush_denormals=True: numbers below the normal range count as 0 inside of calls."""

import pickle

import hotloop as hl
import numpy as np
import pytest


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", ["llvm", "c", "interp"])
@pytest.mark.parametrize("threads", [1, 2])
def test_results_and_operands(dtype, backend, threads):
    least = np.finfo(dtype).tiny
    x = np.full((500, 3), least, dtype)
    fns = {
        flush: hl.jit(lambda x: (x * 0.25, (x / 8) * 64), backend=backend, threads=threads, device="cpu", disabled_passes=["simplify"], flush_denormals=flush)
        for flush in (True, False)
    }
    for _ in range(2):
        assert not np.asarray(fns[True](x)[0]).any()
        assert not np.asarray(fns[True](x)[1]).any()
        np.testing.assert_array_equal(fns[False](x)[0], least / 4)
        np.testing.assert_array_equal(fns[False](x)[1], 8 * least)
    assert x[0, 0] * dtype_of(dtype, 0.5) != 0  # NumPy's numbers stay as they are


def dtype_of(dtype, number):
    return np.dtype(dtype).type(number)


def test_functions_inside_take_the_mode_of_the_outer_one():
    x = np.full(7, 1e-30, np.float32)
    inner = hl.jit(lambda x: x * 1e-10)
    assert np.asarray(inner(x)).all()
    assert not np.asarray(hl.jit(lambda x: inner(x), flush_denormals=True)(x)).any()
    assert np.asarray(hl.jit(lambda x: hl.jit(inner, flush_denormals=True)(x))(x)).all()


def test_an_error_leaves_the_mode_as_it_was():
    flushing = hl.jit(lambda x: x * 1e-10, flush_denormals=True)
    x = np.full(5, 1e-30, np.float32)
    flushing(x)
    with pytest.raises(hl.UserError):
        flushing("text")
    assert (x * np.float32(1e-10)).all()


def test_bound_models_and_streams():
    model = hl.nn.Sequential(hl.nn.Linear(2, 2))
    params = hl.tree.map(lambda a: np.full(a.shape, 0.25 if len(a.shape) == 2 else 0.0, np.float32), model.init(0))
    x = np.full((1, 2), 1e-38, np.float32)
    plain, flushing = model.bind(params), model.bind(params, flush_denormals=True)
    assert np.asarray(plain(x)).all()
    for bound in (flushing, flushing.with_params(params), pickle.loads(pickle.dumps(flushing))):
        assert not np.asarray(bound(x)).any()
        assert not np.asarray(bound.step(None, x)[0]).any()
        assert not np.asarray(bound.voice().step(x)).any()
    with pytest.raises(hl.UserError, match="flush_denormals must be True or False. Received: 1"):
        model.bind(params, flush_denormals=1)


def test_a_fit(rng):
    x = rng.normal(size=(96, 40, 2)).astype(np.float32)
    y = x[:, :1, :1].sum(1)
    model = hl.nn.Sequential(hl.nn.LSTM(2, 8), hl.nn.Last(), hl.nn.Linear(8, 1))
    runs = [hl.fit(model, (x, y), epochs=3, progress=False, flush_denormals=flush) for flush in (True, False)]
    assert runs[0].history[-1].train_loss == pytest.approx(runs[1].history[-1].train_loss, rel=1e-6)
    assert "denormals   count as 0 in arithmetic" in runs[0].explain()
    assert "denormals" not in runs[1].explain()
    assert "denormals   count as 0 in arithmetic" in hl.fit(model, (x, y), epochs=1, progress=False).explain()
    with pytest.raises(hl.UserError, match="flush_denormals must be True or False. Received: 0"):
        hl.fit(model, (x, y), epochs=1, progress=False, flush_denormals=0)


def test_by_themselves_gradients_of_loops_flush_and_nothing_else_does():
    x = np.full(3, 1e-30, np.float32)
    decay = lambda x: hl.scan(lambda c, _: (c * 0.1, c), x, length=12)[0]  # noqa: E731
    assert np.asarray(decay(x)).all()
    assert np.asarray(hl.jit(decay)(x)).all()
    assert np.asarray(hl.jit(lambda x: hl.jvp(decay, (x,), (x,))[1])(x)).all()
    slope = lambda x: hl.grad(lambda x: hl.sum(decay(x) * 1e-30))(x)  # noqa: E731
    assert not np.asarray(hl.jit(slope)(x)).any()
    assert np.asarray(hl.jit(slope, flush_denormals=False)(x)).all()
