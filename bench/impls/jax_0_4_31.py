"""JAX 0.4.31 with its diffrax: XLA's runtime for the CPU became slower on small loops afterwards, so the faster of the two is the rival."""

from impls.diffrax import (  # noqa: F401
    ode_ensemble,
    ode_ensemble_gradient,
    ode_ensemble_saveat,
    ode_ensemble_stiff,
    ode_gradient,
    ode_sensitivity,
    ode_training,
    ode_training_deep,
)
from impls.jax import *  # noqa: F403
from impls.jax import reset  # noqa: F401


def versions():
    import diffrax
    import jax

    return f"jax {jax.__version__}, diffrax {diffrax.__version__}"
