"""heyoka.py: Taylor's method with variational equations; its default mode, which takes longer to compile and runs faster than its compact mode."""

import numpy as np
from harness.prepared import Prepared


def setup(threads):
    pass


def versions():
    import heyoka

    return f"heyoka {heyoka.__version__}"


def ode_sensitivity(sizes, inputs):
    import heyoka as hk

    x, y = hk.make_vars("x", "y")
    # Its parameters: the weights of all layers, row by row, then the biases.
    field = hk.model.ffnn(inputs=[x, y], nn_hidden=[16], n_out=2, activations=[hk.tanh, lambda a: a])
    system = hk.var_ode_sys([(x, field[0]), (y, field[1])], hk.var_args.params, order=1)
    solver = hk.taylor_adaptive(system, list(inputs["y0"]), tol=1e-4)
    order = ("w0", "w1", "b0", "b1")
    solver.pars[:] = np.concatenate([inputs[k].ravel() for k in order])
    start = solver.state.copy()

    def call():
        solver.time = 0.0
        solver.state[:] = start
        solver.propagate_until(1.0)

    call()
    # First order derivatives follow the two states: of x by each parameter, then of y.
    s = solver.state[2:].reshape(2, -1)
    ends = np.cumsum([inputs[k].size for k in order])
    parts = {k: s[:, e - inputs[k].size : e].reshape(2, *inputs[k].shape).copy() for k, e in zip(order, ends)}
    return Prepared(call, {"y1": solver.state[:2].copy(), **parts}, note="default mode")
