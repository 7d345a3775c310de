"""Derivatives of programs with hl.linalg, written for one namespace of arrays and one of transforms: run here and in scripts/record_linalg.py."""

import numpy as np


def matrices(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def positive(seed, *shape):
    a = matrices(seed, *shape)
    return a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])


# name -> (program of (xp, transforms), arguments). xp: hl or jax.numpy; t: hl or jax.
PROGRAMS = {
    "grad_solve": (lambda xp, t: t.grad(lambda a, b: xp.sin(xp.linalg.solve(a, b)).sum(), argnums=(0, 1)), (matrices(1, 4, 4), matrices(2, 4))),
    "grad_solve_columns": (lambda xp, t: t.grad(lambda a, b: xp.sin(xp.linalg.solve(a, b)).sum(), argnums=(0, 1)), (matrices(3, 5, 5), matrices(4, 5, 2))),
    "vmap_grad_solve": (lambda xp, t: t.vmap(t.grad(lambda a, b: (xp.linalg.solve(a, b) ** 2).sum())), (matrices(5, 3, 4, 4), matrices(6, 3, 4))),
    "hessian_solve": (lambda xp, t: t.hessian(lambda b: xp.exp(-xp.linalg.solve(xp.asarray(matrices(7, 3, 3)) + b[:, None] * b[None, :], b)).sum()), (matrices(8, 3),)),
    "grad_inv": (lambda xp, t: t.grad(lambda a: xp.cos(xp.linalg.inv(a)).sum()), (matrices(9, 4, 4),)),
    "grad_det": (lambda xp, t: t.grad(lambda a: xp.linalg.det(a)), (matrices(10, 5, 5),)),
    "grad_slogdet": (lambda xp, t: t.grad(lambda a: xp.linalg.slogdet(a)[1]), (matrices(11, 6, 6),)),
    "hessian_slogdet": (lambda xp, t: t.hessian(lambda a: xp.linalg.slogdet(a)[1]), (matrices(12, 3, 3),)),
    "grad_cholesky": (lambda xp, t: t.grad(lambda a: xp.sin(xp.linalg.cholesky(a)).sum()), (positive(13, 5, 5),)),
    "jvp_grad_gaussian": (  # of the log density of a Gaussian, with the log determinant of its Cholesky factor
        lambda xp, t: lambda s, v: t.jvp(
            t.grad(lambda s: -0.5 * (v * xp.linalg.solve(s, v)).sum() - xp.log(xp.linalg.diagonal(xp.linalg.cholesky(s))).sum()), (s,), (s @ s,)
        )[1],
        (positive(14, 4, 4), matrices(15, 4)),
    ),
    "vmap_grad_batched_det": (lambda xp, t: t.grad(lambda a: (xp.linalg.det(a) ** 2).sum()), (matrices(16, 2, 3, 4, 4),)),
    "grad_norms": (
        lambda xp, t: t.grad(lambda a: xp.linalg.norm(a) + xp.linalg.norm(a, axis=0).sum() + xp.linalg.norm(a, ord=1, axis=1).sum()),
        (matrices(17, 4, 3),),
    ),
}  # fmt: skip
