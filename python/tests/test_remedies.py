"""What errors tell to try is what one writes in Python, and names the leaf or argument that does not fit."""

import re

import hotloop as hl
import numpy as np
import pytest

FLAGS, X, FLOATS = np.ones((3, 3), bool), np.ones((3, 4)), np.ones((40, 3), np.float32)
TREE = {"w": np.ones(3, np.float32), "n": np.int32(3)}


@pytest.mark.parametrize("call, remedy", [
    (lambda: hl.asarray(FLAGS) + hl.asarray(FLAGS), "x.astype(hl.float32), or hl.where()."),
    (lambda: hl.asarray(FLAGS) @ hl.asarray(FLAGS), "x.astype(dtype) of one of them."),
    (lambda: hl.cond(True, lambda: 1.0, lambda: 0), "astype() or reshape() what one of them gives."),
    (lambda: hl.jit(lambda: hl.cond(True, lambda: 1.0, lambda: 0))(), "astype() or reshape() what one of them gives."),
    (lambda: hl.pad(X, 1, constant_values=((0, 0), (5, 6))), "hl.pad for each side that has a number of its own."),
    (lambda: hl.fit(hl.nn.Linear(3, 2), (X[:, :3], FLAGS[0]), loss=hl.losses.CrossEntropy()), "x.astype(hl.float32), of classes y.astype(hl.int32)."),
    (lambda: hl.fit(hl.nn.Linear(3, 1), {"x": FLOATS, "y": FLOATS[:, :1], "sample_weights": FLOATS[:, 0]}, loss=lambda p, t: hl.mean((p - t) ** 2)), "a loss of hl.losses, or a training step of one's own, with hl.value_and_grad."),
    (lambda: hl.grad(lambda p: p["w"].sum())(TREE), "a float there, or the tree without it, with respect to a part of it: lambda part: f({**tree, **part})."),
    (lambda: hl.optim.Adam(0.1).init(TREE), "numbers that are not learned beside the tree, as an argument of their own or in the model."),
])  # fmt: skip
def test_remedies_are_in_python(call, remedy):
    with pytest.raises(hl.UserError, match=re.escape("Try: " + remedy) + "$") as told:
        call()
    assert "DType" not in str(told.value) and "cast(" not in str(told.value)


@pytest.mark.parametrize("derivative", [hl.grad, hl.value_and_grad, hl.jacfwd, hl.jacrev, hl.jacobian, hl.hessian, hl.sparse_hessian, hl.hessian_diagonal])
def test_derivatives_name_the_leaf_that_is_no_float(derivative):
    with pytest.raises(hl.UserError, match=r"f32 or f64 inputs. Received: i32\[\] in the leaf \['n'\] of argument 1. Try: a float there"):
        derivative(lambda x, p: (p["w"] * x).sum(), argnums=1)(2.0, TREE)
    with pytest.raises(hl.UserError, match=r"f32 or f64 inputs. Received: argument 0 = i32\[\]. Try: x.astype\(hl.float32\), or leave it out of argnums"):
        derivative(lambda n: n * 1.0)(np.int32(2))


def test_optimisers_name_the_leaf_that_is_no_float():
    for optimizer in (hl.optim.Adam(0.1), hl.optim.SGD(0.1), hl.optim.ClipByNorm(hl.optim.SGD(0.1), 1.0)):
        with pytest.raises(hl.UserError, match=r"^\[optim\] leaves of params must be f32 or f64. Received: int32 in the leaf \['n'\]"):
            optimizer.init(TREE)
        floats = {"w": np.ones(3, np.float32), "n": np.float32(3)}
        with pytest.raises(hl.UserError, match=r"^\[optim\] leaves of grads must be f32 or f64. Received: int32 in the leaf \['n'\]"):
            optimizer.update(TREE, optimizer.init(floats), floats)
        with pytest.raises(hl.UserError, match=r"^\[optim\] leaves of params must be f32 or f64"):
            hl.jit(optimizer.init)(TREE)
