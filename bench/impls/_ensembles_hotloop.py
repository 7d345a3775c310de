"""Ensembles of differential equations; see tasks/ode_ensembles.py."""

import numpy as np

from impls._applications_hotloop import _prepared
from impls._hotloop_options import OPTIONS


def _lorenz(t, y, rho):
    import hotloop as hl

    return hl.stack([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def _solve(rho, **given):
    import hotloop as hl

    return hl.ode.solve(_lorenz, hl.ode.Tsit5(), 0, 1, np.array([1, 0, 0], np.float32), args=rho, dt0=0.01, controller=hl.ode.PID(1e-6, 1e-6), **given)


def ode_ensemble_saveat(sizes, inputs):
    import hotloop as hl

    f = hl.jit(hl.vmap(lambda rho: (_solve(rho, saveat=np.linspace(0, 1, 20)).ys,)), **OPTIONS)
    return _prepared(f, (inputs["rho"],), ("ys",))


def ode_ensemble_gradient(sizes, inputs):
    import hotloop as hl

    gradient = hl.grad(lambda rho: (_solve(rho, max_steps=256).y1 ** 2).sum())
    f = hl.jit(hl.vmap(lambda rho: (gradient(rho),)), **OPTIONS)
    return _prepared(f, (inputs["rho"],), ("gradient",))


def ode_ensemble_stiff(sizes, inputs):
    import hotloop as hl

    def robertson(t, y, rate):
        slow, back, fast = rate * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
        return hl.stack([back - slow, slow - back - fast, fast])

    def one(rate):
        controller = hl.ode.PID(rtol=1e-4, atol=1e-8)
        return (hl.ode.solve(robertson, hl.ode.Kvaerno5(), 0, 100, np.array([1.0, 0, 0]), args=rate, controller=controller, max_steps=1000).y1,)

    return _prepared(hl.jit(hl.vmap(one), **OPTIONS), (inputs["rate"],), ("y1",))
