"""Programs whose loss has derivatives, linear systems or fixed points in it, as users write them, once for every library. `xp` has the functions of
the array API standard that they need, and scan, roll, pad, cholesky, solve_triangular, solve, slogdet, and:

gradients(f), jacobians(f): of f(point) at each row of an array. derivative(f, order): of f(t, x) by x, at arrays of numbers. fixed_point(f, z, *args): z = f(z, *args),
with the derivative of the equation. each(f): f of single samples at all of them.
"""


def net(xp, p, x, name="", depth=2):
    for i in range(depth):
        x = xp.tanh(x @ p[f"{name}w{i}"] + p[f"{name}b{i}"])
    return x @ p[f"{name}w{depth}"]


def runge_kutta(f, y, h):
    a = f(y)
    b = f(y + h / 2 * a)
    c = f(y + h / 2 * b)
    return y + h / 6 * (a + 2 * b + 2 * c + f(y + h * c))


def hamiltonian(xp, p, d):
    """Twenty Runge-Kutta steps along the gradient of a network, turned (Greydanus, Dzamba, Yosinski 2019)."""

    def field(z):
        g = xp.gradients(lambda z: net(xp, p, z)[..., 0])(z)
        return xp.concat([g[:, 2:], -g[:, :2]], axis=1)

    z = xp.scan(lambda z, _: (runge_kutta(field, z, 0.1), None), d["start"], None, 20)[0]
    return xp.mean((z - d["seen"]) ** 2)


def normalising_flow(xp, p, d):
    """A continuous flow with the trace of the Jacobian (Chen, Rubanova, Bettencourt, Duvenaud 2018): ten midpoint steps."""

    def field(x):
        j = xp.jacobians(lambda x: net(xp, p, x))(x)
        return net(xp, p, x), -(j[:, 0, 0] + j[:, 1, 1])

    def step(carry, _):
        x, log_density = carry
        v, _ = field(x)
        v, change = field(x + 0.05 * v)
        return (x + 0.1 * v, log_density + 0.1 * change), None

    x, log_density = xp.scan(step, (d["x"], d["x"][:, 0] * 0), None, 10)[0]
    return xp.mean(0.5 * xp.sum(x * x, axis=1) + log_density)


def solitons(xp, p, d):
    """The residual of Korteweg and de Vries' equation, u_t + 6 u u_x + u_xxx, at 256 points."""

    def u(t, x):
        return net(xp, p, xp.stack([t, x], -1))[..., 0]

    def swapped(x, t):
        return u(t, x)

    t, x = d["points"][:, 0], d["points"][:, 1]
    u_t = xp.derivative(swapped, 1)(x, t)
    residual = u_t + 6 * u(t, x) * xp.derivative(u, 1)(t, x) + xp.derivative(u, 3)(t, x)
    return xp.mean(residual**2)


def phase_field(xp, p, d):
    """Sixty explicit steps of Allen and Cahn's equation on a 48 x 48 grid between walls of zero."""
    c = xp.exp(p["rates"])

    def step(u, _):
        v = xp.pad(u)
        flow = v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2] - 4 * u
        return u + 0.05 * (c[0] * flow + c[1] * u - c[2] * u * u * u), None

    return xp.mean((xp.scan(step, p["start"], None, 60)[0] - d["seen"]) ** 2)


def deep_kernel(xp, p, d):
    """The marginal likelihood of a Gaussian process on what a network makes of 80 samples (Wilson et al. 2016)."""
    z = net(xp, p, d["x"], depth=1)
    distance = xp.sum((z[:, None, :] - z[None, :, :]) ** 2, axis=2)
    factor = xp.cholesky(xp.exp(-0.5 * distance) + (xp.exp(p["noise"][0]) + 0.1) * d["one"])
    a = xp.solve_triangular(factor, d["y"])
    return (0.5 * xp.sum(a * a) + xp.sum(xp.log(xp.sum(factor * d["one"], axis=1)))) / 80


def equilibrium(xp, p, d):
    """A layer that is where its iteration settles, with the derivative of the equation (Bai, Kolter, Koltun 2019)."""
    z = xp.fixed_point(lambda z, w, u, x: xp.tanh(z @ w + x @ u), d["x"] @ p["u"] * 0, p["w"], p["u"], d["x"])
    return xp.mean((z @ p["out"] - d["y"]) ** 2)


def extended_kalman(xp, p, d):
    """The likelihood of an extended Kalman filter with a network as the dynamics: its Jacobian at each of 40 steps, 16 sequences."""
    n, one = 4, d["one"]
    q, r = xp.exp(p["q"][0]) * one, xp.exp(p["r"][0]) * one[:2, :2]

    def move(x):
        return x + 0.1 * net(xp, p, x, depth=1)

    def step(carry, seen):
        x, cov = carry
        f = xp.jacobians(move)(x)
        x, cov = move(x), f @ cov @ xp.matrix_transpose(f) + q
        s, v = cov[:, :2, :2] + r, (seen - x[:, :2])[:, :, None]
        gain = xp.matrix_transpose(xp.solve(s, cov[:, :2, :]))
        value = xp.sum(v * xp.solve(s, v), axis=(1, 2)) + xp.slogdet(s)[1]
        return (x + (gain @ v)[:, :, 0], cov - gain @ cov[:, :2, :]), value

    batch = d["seen"].shape[1]
    start = d["seen"][0, :, :1] * xp.reshape(one[:1] * 0, (1, n)), one + xp.reshape(d["seen"][0, :, 0] * 0, (batch, 1, 1))
    return xp.mean(xp.scan(step, start, d["seen"])[1])


def gaussians(xp, p, d):
    """The likelihood of 1000 samples, each under a Gaussian of six numbers with a covariance of its own."""
    half = xp.reshape(d["x"] @ p["w"], (1000, 6, 6))
    covariance = half @ xp.matrix_transpose(half) + d["one"]
    v = d["y"][:, :, None]
    return xp.mean(0.5 * xp.sum(v * xp.solve(covariance, v), axis=(1, 2)) + 0.5 * xp.slogdet(covariance)[1])


PROGRAMS = (hamiltonian, normalising_flow, solitons, phase_field, deep_kernel, equilibrium, extended_kalman, gaussians)
BY_NAME = {f.__name__: f for f in PROGRAMS}
