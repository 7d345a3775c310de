"""SciPy's odeint, whose loop over the steps is LSODA's compiled one: Python is called for the field alone."""

from impls import scipy
from impls.scipy import setup, versions  # noqa: F401


def ode_detest(sizes, inputs):
    return scipy.ode_detest(sizes, inputs, "scipy_odeint")
