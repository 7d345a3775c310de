"""Arguments of a wrong kind: each is refused in the function's name, with what came."""

import re

import hotloop as hl
import numpy as np
import pytest

V, M, KEY = np.ones(3, np.float32), np.ones((3, 3), np.float32), hl.random.key(0)


def fn(x):
    return hl.sum(x * x)


@pytest.mark.parametrize("call, message", [
    (lambda: hl.random.normal(KEY, None), "[random] an extent must be an integer. Received: None."),
    (lambda: hl.random.uniform(KEY, (2, 1.5)), "[random] an extent must be an integer. Received: 1.5."),
    (lambda: hl.random.gamma(KEY, 1.0, (-1,)), "[gamma] parameters must broadcast to the shape. Received: (), shape=(-1,)."),
    (lambda: hl.random.choice(KEY, 5, "ab"), "[random] an extent must be an integer. Received: 'ab'."),
    (lambda: hl.random.key(1.5), "[random] a seed must be an integer. Received: 1.5."),
    (lambda: hl.random.split(KEY, None), "[random] the number of keys must be an integer. Received: None."),
    (lambda: hl.random.uniform(KEY, low=None), "[random] low must be a number. Received: None."),
    (lambda: hl.random.truncated_normal(KEY, np.ones(2), V), "[random] shapes"),
    (lambda: hl.random.categorical(KEY, V, axis="a"), "[random] the axis must be an integer. Received: 'a'."),
    (lambda: hl.random.permutation(KEY, M, axis=2), "[random] the axis must be one of the array's 2 axes. Received: 2."),
    (lambda: hl.random.permutation(KEY, [[1, 2], [3]]), "[random] NumPy must be able to make an array of it. Received: a list"),
    (lambda: hl.permute_dims(M, None), "[permute_dims] an axis must be an integer. Received: None."),
    (lambda: hl.transpose(M, 1.0), "[transpose] an axis must be an integer. Received: 1.0."),
    (lambda: hl.moveaxis([[1, 2], [3]], 0, 1), "[moveaxis] NumPy must be able to make an array of it. Received: a list"),
    (lambda: hl.diag(V, k=None), "[diag] k must be an integer. Received: None."),
    (lambda: hl.logspace(V, V, base=None), "[logspace] base must be a number. Received: None."),
    (lambda: hl.concat(None), "[concat] arrays must be a list or tuple of arrays. Received: None."),
    (lambda: hl.stack(1.0), "[stack] arrays must be a list or tuple of arrays. Received: a number."),
    (lambda: hl.column_stack(3), "[column_stack] arrays must be a list or tuple of arrays. Received: a number."),
    (lambda: hl.split(V, 1.5), "[split] an index must be an integer. Received: 1.5."),
    (lambda: hl.array_split(V, None), "[array_split] the number of parts must be an integer. Received: None."),
    (lambda: hl.dynamic_slice(V, None, (2,)), "[dynamic_slice] starts must be a list or tuple of integers, one an axis. Received: None."),
    (lambda: hl.dynamic_slice(V, (0,), "a"), "[dynamic_slice] a size must be an integer. Received: 'a'."),
    (lambda: hl.dynamic_update(V, V, 0), "[dynamic_update] starts must be a list or tuple of integers, one an axis. Received: a number."),
    (lambda: hl.sliding_window_view(V, 1.5), "[sliding_window_view] the size must be an integer. Received: 1.5."),
    (lambda: hl.dot_general(M, M, 1, None), "[dot_general] an axis must be an integer. Received: None."),
    (lambda: hl.tensordot(M, M, axes=None), "[tensordot] axes must be an integer. Received: None."),
    (lambda: hl.tensordot(M, M, axes=-1), "[tensordot] axes must not be negative. Received: -1."),
    (lambda: hl.tensordot(M, M, axes=(0, 1, 2)), "[tensordot] axes must be a pair. Received: (0, 1, 2)."),
    (lambda: hl.rot90(M, axes=None), "[rot90] axes must be a pair. Received: None."),
    (lambda: hl.arange(None), "[arange] start must be a number. Received: None."),
    (lambda: hl.arange(0, "3"), "[arange] stop must be a number. Received: a str."),
    (lambda: hl.linspace(0.0, 1.0, []), "[linspace] num must be an integer. Received: []."),
    (lambda: hl.logspace(0.0, 1.0, base=None), "[logspace] base must be a number. Received: None."),
    (lambda: hl.one_hot([0, 1], None), "[one_hot] num_classes must be an integer. Received: None."),
    (lambda: hl.full((2,), V), "[full] the value must broadcast to the shape. Received: (3,) for (2,)."),
    (lambda: hl.full_like(V, [[1, 2], [3]]), "[full_like] NumPy must be able to make an array of it. Received: a list"),
    (lambda: hl.diff(V, n=None), "[diff] n must be an integer. Received: None."),
    (lambda: hl.var(V, correction="a"), "[var] correction must be a number. Received: a str."),
    (lambda: hl.nanvar(V, correction=None), "[nanvar] correction must be a number. Received: None."),
    (lambda: hl.cov(M, correction="a"), "[cov] correction must be a number. Received: a str."),
    (lambda: hl.isclose(V, V, rtol=None), "[isclose] an array must be an Array, a NumPy array, a number, a list of numbers or have __dlpack__. Received: None."),
    (lambda: hl.nonzero(V, size=1.5), "[nonzero] size must be an integer. Received: 1.5."),
    (lambda: hl.unique_values(V, size=-1), "[unique_values] size must not be negative. Received: -1."),
    (lambda: hl.jvp_many(fn, V, (M,)), "[jvp_many] primals must be a tuple, one for each argument. Received: a ndarray. Try: (primal,)."),
    (lambda: hl.fisher_vp(None, V, V), "[fisher_vp] what is differentiated must be a function. Received: None."),
    (lambda: hl.gauss_newton_vp(fn, 1, V, V), "[gauss_newton_vp] the loss must be a function. Received: an int."),
    (lambda: hl.minimize(fn, V, args=1), "[minimize] args must be a tuple of what the function takes after the params. Received: an int. Try: (args,)."),
    (lambda: hl.minimize(fn, V, gradient_tolerance=None), "[minimize] gradient_tolerance must be a number. Received: None."),
    (lambda: hl.minimize(fn, V, method=None), "[minimize] method must be a name. Received: None."),
    (lambda: hl.ode.PID(pcoeff="a"), "[ode.PID] pcoeff must be a number. Received: a str."),
    (lambda: hl.ode.SaveAt(ts="a"), "[ode] ts must be a list of times. Received: 'a'. Try: numpy.linspace(t0, t1, n)."),
    (lambda: hl.tree.map(None, V), "[tree.map] what is applied must be a function. Received: None."),
    (lambda: hl.tree.unflatten(V, [V]), "[tree.unflatten] the first argument must be a structure. Received: a ndarray. Try: hl.tree.structure(tree)."),
    (lambda: hl.from_keras(None), "[from_keras] the model must be one of Keras, or the path of a file. Received: None."),
    (lambda: hl.nn.normal(0, (2,), stddev=None), "[nn.normal] stddev must be a number. Received: None."),
    (lambda: hl.nn.layer_norm(M, V, V, "a"), "[layer_norm] epsilon must be a number. Received: a str."),
    (lambda: hl.explain(None), "[jit] what is compiled must be a function. Received: None."),
    (lambda: hl.linalg.cross(1.0, V), "[cross] a scalar has no axes. Received: axis -1."),
    (lambda: hl.linalg.diagonal(M, offset=None), "[diagonal] offset must be an integer. Received: None."),
    (lambda: hl.nn.uniform(0, "a"), "[nn.uniform] an extent must be an integer. Received: 'a'."),
    (lambda: hl.nn.LSTM(V, 3), "[lstm] inputs must be an integer, of 64 bits at most. Received: array("),
    (lambda: hl.optim.Adam(0.1, beta1=M), "[beta1] a setting must be a number, a text, True or False, or a list of numbers. Received: array("),
])  # fmt: skip
def test_what_is_wrong_is_said(call, message):
    with pytest.raises(hl.UserError, match="^" + re.escape(message)):
        call()


def test_what_has_no_shape_becomes_an_array():
    assert [part.tolist() for part in hl.split([1, 2, 3, 4], 2)] == [[1, 2], [3, 4]]
    assert [part.tolist() for part in hl.array_split([1, 2, 3], 2)] == [[1, 2], [3]]
    assert [int(x) for x in hl.unstack([1, 2])] == [1, 2]
    assert sorted(hl.random.permutation(KEY, [3, 1, 2]).tolist()) == [1, 2, 3]
    assert hl.random.choice(KEY, [5, 5], (3,)).tolist() == [5, 5, 5]
    assert hl.tensordot(M, M, axes=(0, 1)).tolist() == hl.tensordot(M, M, axes=([0], [1])).tolist()


def test_several_integers_may_be_an_array():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for several in (tuple, list, np.array):
        assert hl.permute_dims(x, several([1, 0])).shape == (3, 2) == hl.transpose(x, several([1, 0])).shape
        assert [len(part) for part in hl.split(np.arange(5), several([1, 3]))] == [1, 2, 2] == [len(part) for part in hl.array_split(np.arange(5), several([1, 3]))]
        assert hl.rot90(x, axes=several([0, 1])).tolist() == np.rot90(x).tolist()
    assert hl.full((2,), [0.1, 0.2], "float64").tolist() == [0.1, 0.2] and hl.full((2,), [2**40, 1], "int64").tolist() == [2**40, 1]
