"""dot_precision="bfloat16": factors rounded, everything else float32."""

import pickle

import hotloop as hl
import numpy as np
import pytest


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def test_factors_are_rounded_and_sums_are_not(rng):
    a, b = rng.normal(size=(5, 33)).astype(np.float32), rng.normal(size=(33, 40)).astype(np.float32)
    got = hl.jit(lambda a, b: a @ b, dot_precision="bfloat16")(a, b)
    exact = to_bf16(a).astype(np.float64) @ to_bf16(b).astype(np.float64)
    np.testing.assert_allclose(got, exact, atol=1e-5)
    assert np.abs(np.asarray(got) - a @ b).max() > 1e-3
    total = hl.jit(lambda a: a.sum(1), dot_precision="bfloat16")(a)  # no product of matrices
    np.testing.assert_allclose(total, a.sum(1), atol=1e-5)


def test_double_precision_stays(rng):
    a = rng.normal(size=(5, 33))
    np.testing.assert_array_equal(hl.jit(lambda a: a @ a.T, dot_precision="bfloat16")(a), hl.jit(lambda a: a @ a.T)(a))


def test_a_fit_keeps_float32_parameters(rng):
    x = rng.normal(size=(96, 6, 2)).astype(np.float32)
    y = x[:, :, :1].sum(1)
    model = hl.nn.Sequential(hl.nn.LSTM(2, 16), hl.nn.Last(), hl.nn.Linear(16, 1))
    fits = {p: hl.fit(model, (x, y), optimizer=hl.optim.Adam(1e-2), epochs=10, progress=False, dot_precision=p) for p in ("float32", "bfloat16")}
    assert {leaf.dtype.name for leaf in hl.tree.leaves(fits["bfloat16"].params)} == {"float32"}
    losses = {p: run.history[-1].train_loss for p, run in fits.items()}
    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05)
    assert "factors of f32 in bfloat16" in fits["bfloat16"].explain()
    assert "bfloat16" not in fits["float32"].explain()


def test_a_bound_model_rounds_as_a_compiled_one(rng):
    model = hl.nn.Sequential(hl.nn.LSTM(3, 24), hl.nn.Last(), hl.nn.Linear(24, 2))
    params, x = model.init(0), rng.normal(size=(5, 7, 3)).astype(np.float32)
    wanted = hl.jit(lambda p, x: model(p, x), dot_precision="bfloat16")(params, x)
    bound = model.bind(params, dot_precision="bfloat16")
    assert not np.array_equal(wanted, model.bind(params)(x))
    for same in (bound, bound.with_params(params), pickle.loads(pickle.dumps(bound))):
        np.testing.assert_array_equal(same(x), wanted)
        state = None
        for t in range(x.shape[1]):
            y, state = same.step(state, x[:, t])
        np.testing.assert_array_equal(y, wanted)
    with pytest.raises(hl.UserError, match=r"dot_precision must be 'float32' or 'bfloat16'. Received: 'half'"):
        model.bind(params, dot_precision="half")



def test_other_names_are_refused():
    with pytest.raises(hl.UserError, match=r"dot_precision must be 'float32' or 'bfloat16'. Received: 'half'"):
        hl.jit(lambda x: x, dot_precision="half")
