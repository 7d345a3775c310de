"""Programs as users write them, once for every library: `xp` has the functions of the array API standard that they need, and scan,
sigmoid, softmax, logsumexp, take_rows, take_along and one_hot besides (tasks/programs.py has them for NumPy). Each gives a loss, of parameters (a dict) and data (a dict).

Nothing in Hotloop knows of them: they are what a compiler of recurrent and small networks meets on its first day.
"""

import numpy as np
from harness.task import rng


def gated_recurrence(xp, p, d):
    """A linear recurrence with gates from the input alone (Martin and Cundy 2018)."""
    keep = xp.sigmoid(d["x"] @ p["gate"])
    new = (1 - keep) * (d["x"] @ p["value"])

    def step(h, at):
        h = at[0] * h + at[1]
        return h, h

    states = xp.scan(step, new[0] * 0, (keep, new))[1]
    return xp.mean((states @ p["out"] - d["y"]) ** 2)


def attention_decoder(xp, p, d):
    """A GRU that looks at all encoded steps in each of its own (Luong et al. 2015)."""
    n = p["query"].shape[0]

    def step(h, x):
        a, b = x @ p["input"], h @ p["state"]
        r, z = xp.sigmoid(a[:, :n] + b[:, :n]), xp.sigmoid(a[:, n : 2 * n] + b[:, n : 2 * n])
        h = (1 - z) * xp.tanh(a[:, 2 * n :] + r * b[:, 2 * n :]) + z * h
        weights = xp.softmax(xp.sum((h @ p["query"])[:, None, :] * d["encoded"], axis=2), 1)
        context = xp.sum(weights[:, :, None] * d["encoded"], axis=1)
        return h, xp.concat([h, context], axis=1) @ p["out"]

    return xp.mean((xp.scan(step, d["encoded"][:, 0, :] * 0, d["x"])[1] - d["y"]) ** 2)


def hidden_markov(xp, p, d):
    """The log-likelihood of a hidden Markov model by the forward algorithm (Rabiner 1989)."""
    moves = p["moves"] - xp.logsumexp(p["moves"], 1)[:, None]
    emits = p["emits"] - xp.logsumexp(p["emits"], 1)[:, None]
    seen = xp.take_rows(emits.T, d["symbols"])

    def step(log_alpha, emitted):
        return xp.logsumexp(log_alpha[:, :, None] + moves[None, :, :], 1) + emitted, None

    return -xp.mean(xp.logsumexp(xp.scan(step, seen[0] * 0, seen)[0], 1))


def fast_weights(xp, p, d):
    """A state that is a matrix, corrected by the delta rule (Schlag et al. 2021)."""

    def step(memory, x):
        key, query = xp.softmax(x @ p["key"], 1), xp.softmax(x @ p["query"], 1)
        rate, value = xp.sigmoid(x @ p["rate"]), x @ p["value"]
        old = xp.sum(memory * key[:, None, :], axis=2)
        memory = memory + (rate * (value - old))[:, :, None] * key[:, None, :]
        return memory, xp.sum(memory * query[:, None, :], axis=2) @ p["out"]

    start = (d["x"][0] @ p["value"] * 0)[:, :, None] * (d["x"][0] @ p["key"])[:, None, :]
    return xp.mean((xp.scan(step, start, d["x"])[1] - d["y"]) ** 2)


def normalised(xp, x):
    x = x - xp.mean(x, axis=-1, keepdims=True)
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5)


def transformer_block(xp, p, d):
    """One block with four heads, normalised before (Xiong et al. 2020)."""
    b, s, w = d["x"].shape
    heads = 4

    def split(x):
        return xp.permute_dims(xp.reshape(x, (b, s, heads, w // heads)), (0, 2, 1, 3))

    h = normalised(xp, d["x"]) @ p["qkv"]
    q, k, v = (split(h[:, :, i * w : (i + 1) * w]) for i in range(3))
    weights = xp.softmax(q @ xp.permute_dims(k, (0, 1, 3, 2)) * (heads / w) ** 0.5, 3)
    x = d["x"] + xp.reshape(xp.permute_dims(weights @ v, (0, 2, 1, 3)), (b, s, w)) @ p["out"]
    inner = normalised(xp, x) @ p["wide"]
    return xp.mean((x + (inner * xp.sigmoid(inner)) @ p["narrow"] - d["y"]) ** 2)


def deep_perceptron(xp, p, d):
    """Eight layers with silu."""
    x = d["x"]
    for i in range(8):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        x = x * xp.sigmoid(x)
    return xp.mean((x @ p["out"] - d["y"]) ** 2)


def masked_cell(xp, p, d):
    """A normalised LSTM over sequences of unequal length: the state stays where a row has ended."""
    n = p["state"].shape[0]

    def step(carry, at):
        h, c = carry
        x, valid = at
        g = normalised(xp, x @ p["input"] + h @ p["state"]) * p["gain"]
        i, f, o = (xp.sigmoid(g[:, k * n : (k + 1) * n]) for k in range(3))
        new_c = f * c + i * xp.tanh(g[:, 3 * n :])
        new_h = o * xp.tanh(new_c)
        return (valid * new_h + (1 - valid) * h, valid * new_c + (1 - valid) * c), None

    zero = (d["x"][0] @ p["input"])[:, :n] * 0
    return xp.mean((xp.scan(step, (zero, zero), (d["x"], d["valid"]))[0][0] @ p["out"] - d["y"]) ** 2)


def causal_convolutions(xp, p, d):
    """Four dilated causal convolutions (van den Oord et al. 2016)."""
    x = d["x"]
    for i in range(4):
        gap, n = 2**i, x.shape[1]
        padded = xp.concat([x[:, : 2 * gap, :] * 0, x], axis=1)
        x = sum(padded[:, k * gap : k * gap + n, :] @ p[f"k{i}"][k] for k in range(3))
        x = x * xp.sigmoid(x)
    return xp.mean((x @ p["out"] - d["y"]) ** 2)


def runge_kutta(xp, p, d):
    """Forty steps of the classical Runge-Kutta method through a network."""

    def field(h):
        return xp.tanh(h @ p["w1"] + p["b1"]) @ p["w2"] - h

    def step(h, _):
        a = field(h)
        b = field(h + 0.05 * a)
        c = field(h + 0.05 * b)
        return h + 0.1 / 6 * (a + 2 * b + 2 * c + field(h + 0.1 * c)), None

    return xp.mean((xp.scan(step, d["x"], None, 40)[0] - d["y"]) ** 2)


def bodies(xp, p, d):
    """Fifty leapfrog steps of 32 bodies that attract each other, and where they began."""

    def force(q):
        apart = q[None, :, :] - q[:, None, :]
        square = xp.sum(apart * apart, axis=2) + 0.01
        return xp.sum(apart / (square * xp.sqrt(square))[:, :, None], axis=1) / q.shape[0]

    def step(carry, _):
        q, v = carry
        v = v + 0.005 * force(q)
        q = q + 0.01 * v
        return (q, v + 0.005 * force(q)), None

    return xp.mean((xp.scan(step, (p["q"], p["v"]), None, 50)[0][0] - d["seen"]) ** 2)


def pair_energy(xp, p, d):
    """A network on the distances of all pairs of 40 points; forces are its gradient."""
    apart = p["q"][:, None, :] - p["q"][None, :, :]
    distance = xp.sqrt(xp.sum(apart * apart, axis=2) + 1e-3)
    features = xp.exp(-4 * (distance[:, :, None] - d["centres"]) ** 2)
    return xp.sum(xp.tanh(features @ p["w1"]) @ p["w2"]) * 1e-3


def messages(xp, p, d):
    """Three rounds of messages between the 30 nodes of 16 graphs (Gilmer et al. 2017)."""
    x = d["x"]
    for _ in range(3):
        sent = xp.tanh((x @ p["from"])[:, :, None, :] + (x @ p["to"])[:, None, :, :])
        heard = xp.sum(sent * d["edges"][:, :, :, None], axis=2)
        x = x + xp.tanh(xp.concat([x, heard], axis=2) @ p["update"])
    return xp.mean((xp.sum((x @ p["out"])[:, :, 0], axis=1) - d["y"]) ** 2)


def characters(xp, p, d):
    """A GRU that guesses the next of 64 characters."""
    n, (steps, batch) = p["state"].shape[0], d["text"].shape
    x = xp.take_rows(p["embedding"], d["text"][: steps - 1])

    def step(h, x):
        a, b = x @ p["input"], h @ p["state"]
        r, z = xp.sigmoid(a[:, :n] + b[:, :n]), xp.sigmoid(a[:, n : 2 * n] + b[:, n : 2 * n])
        h = (1 - z) * xp.tanh(a[:, 2 * n :] + r * b[:, 2 * n :]) + z * h
        return h, h

    logits = xp.scan(step, (x[0] @ p["input"])[:, :n] * 0, x)[1] @ p["out"]
    log_p = logits - xp.logsumexp(logits, 2)[:, :, None]
    return -xp.sum(log_p * xp.one_hot(d["text"][1:], 64)) / ((steps - 1) * batch)


def ensemble(xp, p, d):
    """Fifty perceptrons with weights of their own on the same samples."""
    x = xp.tanh(d["x"] @ p["w1"] + p["b1"][:, None, :])
    x = xp.tanh(x @ p["w2"] + p["b2"][:, None, :])
    return xp.mean((x @ p["w3"] - d["y"]) ** 2)


def waves(xp, p, d):
    """Five hundred steps of the wave equation on 128 points, and the speed at each."""

    def step(carry, _):
        before, now = carry
        bend = xp.concat([now[1:], now[127:]], axis=0) + xp.concat([now[:1], now[:127]], axis=0) - 2 * now
        return (now, 2 * now - before + p["speed"] ** 2 * bend), None

    return xp.mean((xp.scan(step, (d["start"], d["start"]), None, 500)[0][1] - d["seen"]) ** 2)


def connectionist(xp, p, d):
    """A loss over all alignments of a sequence with a shorter one (Graves et al. 2006), forward algorithm in logarithms."""
    never = -1e5
    lo = xp.tanh(d["x"] @ p["w1"] + p["b1"]) @ p["w2"]
    log_p = lo - xp.logsumexp(lo, 2)[:, :, None]
    labels = d["labels"]
    first = xp.take_along(log_p[0], labels, 1)

    def step(alpha, at):
        from_before = xp.concat([alpha[:, :1] * 0 + never, alpha[:, :-1]], axis=1)
        from_two_before = xp.concat([alpha[:, :2] * 0 + never, alpha[:, :-2]], axis=1) + d["bar"]
        return xp.logsumexp(xp.stack([alpha, from_before, from_two_before], axis=0), 0) + xp.take_along(at, labels, 1), None

    alpha = xp.scan(step, xp.concat([first[:, :2], first[:, 2:] * 0 + never], axis=1), log_p[1:])[0]
    return -xp.mean(xp.logsumexp(alpha[:, -2:], 1))


def selective_scan(xp, p, d):
    """A diagonal state space whose rates come from the input (Gu and Dao 2023), with its convolution and gate."""
    b, t, _ = d["x"].shape
    inside, taps = p["b"].shape[0], p["taps"].shape[0]

    def silu(x):
        return x * xp.sigmoid(x)

    def turned(x):
        return xp.permute_dims(x, (1, 0, *range(2, len(x.shape))))

    both = d["x"] @ p["in"]
    u, gate = both[:, :, :inside], both[:, :, inside:]
    padded = xp.concat([u[:, : taps - 1, :] * 0, u], axis=1)
    u = silu(sum(padded[:, k : k + t, :] * p["taps"][k] for k in range(taps)))
    rate = xp.log(1 + xp.exp(u @ p["rate"] + p["bias"]))
    b_t, c_t = u @ p["b"], u @ p["c"]
    keep = xp.exp(-rate[:, :, :, None] * xp.exp(p["decay"]))
    new = (rate * u)[:, :, :, None] * b_t[:, :, None, :]

    def step(h, at):
        keep, new, c = at
        h = keep * h + new
        return h, xp.sum(h * c[:, None, :], axis=2)

    y = turned(xp.scan(step, new[:, 0] * 0, (turned(keep), turned(new), turned(c_t)))[1])
    return xp.mean(((y * silu(gate)) @ p["out"] - d["y"]) ** 2)


def circuit(xp, p, d):
    """A diode clipper by the trapezoidal rule, six Newton iterations a sample; its resistance, capacitance and current are fitted to a signal."""
    twice_rate, thermal = 2 * 44100.0, 0.0453
    charge = 1e-8 * xp.exp(p["capacitance"][0]) * twice_rate
    g, k = 1 / (2.2e3 * xp.exp(p["resistance"][0]) * charge), 2 * 2.5e-9 * xp.exp(p["current"][0]) / charge

    def step(carry, u):
        v, slope = carry

        def newton(z, _):
            f = z - v - slope - g * (u - z) + k * xp.sinh(z / thermal)
            return z - f / (1 + g + k / thermal * xp.cosh(z / thermal)), None

        z = xp.scan(newton, v, None, 6)[0]
        return (z, g * (u - z) - k * xp.sinh(z / thermal)), z

    start = p["current"][0] * 0
    return xp.mean((xp.scan(step, (start, start), d["signal"])[1] - d["y"]) ** 2)


def filters(xp, p, d):
    """Four second-order filters one after the other, in transposed direct form, fitted to a signal."""

    def step(state, x):
        new = []
        for k in range(4):
            b, a = p["b"][k], p["a"][k]
            y = b[0] * x + state[k][0]
            new.append((b[1] * x - a[0] * y + state[k][1], b[2] * x - a[1] * y))
            x = y
        return tuple(new), x

    zero = (p["b"][0, 0] + p["a"][0, 0]) * d["x"][0] * 0
    return xp.mean((xp.scan(step, ((zero, zero),) * 4, d["x"])[1] - d["y"]) ** 2)


def external_memory(xp, p, d):
    """An LSTM that reads and writes 16 slots by their content (Graves et al. 2014)."""
    n, width = p["state"].shape[0], p["erase"].shape[1]

    def address(head, memory, before):
        key, strength, gate = xp.tanh(head[:, :width]), xp.exp(head[:, width : width + 1]), xp.sigmoid(head[:, width + 1 :])
        like = xp.sum(memory * key[:, None, :], axis=2)
        like = like / xp.sqrt(xp.sum(memory * memory, axis=2) * xp.sum(key * key, axis=1)[:, None] + 1e-4)
        return gate * xp.softmax(strength * like, 1) + (1 - gate) * before

    def step(carry, x):
        h, c, memory, read, at_read, at_write = carry
        g = xp.concat([x, read], axis=1) @ p["input"] + h @ p["state"]
        i, f, o = (xp.sigmoid(g[:, j * n : (j + 1) * n]) for j in range(3))
        c = f * c + i * xp.tanh(g[:, 3 * n :])
        h = o * xp.tanh(c)
        at_write = address(h @ p["write"], memory, at_write)
        erase, add = xp.sigmoid(h @ p["erase"]), xp.tanh(h @ p["add"])
        memory = memory * (1 - at_write[:, :, None] * erase[:, None, :]) + at_write[:, :, None] * add[:, None, :]
        at_read = address(h @ p["read"], memory, at_read)
        read = xp.sum(at_read[:, :, None] * memory, axis=1)
        return (h, c, memory, read, at_read, at_write), xp.concat([h, read], axis=1) @ p["out"]

    zero = (d["x"][0] @ p["erase"][: d["x"].shape[2]])[:, :1] * 0
    memory = p["memory"][None, :, :] + zero[:, :, None]
    slots = zero + p["memory"][:, 0] * 0 + 1 / p["memory"].shape[0]
    start = (zero + p["state"][0, :n] * 0, zero + p["state"][0, :n] * 0, memory, memory[:, 0] * 0, slots, slots)
    return xp.mean((xp.scan(step, start, d["x"])[1] - d["y"]) ** 2)


def single_samples(xp, p, d):
    """A perceptron that learns from one sample after the other, by slopes written by hand, and how its errors depend on where it began and on its rate."""
    rate = 0.03 * xp.exp(p["rate"][0])

    def step(weights, at):
        w1, b1, w2, b2, w3 = weights
        x, y = at
        h1 = xp.tanh(x @ w1 + b1)
        h2 = xp.tanh(h1 @ w2 + b2)
        error = xp.sum(h2 * w3) - y
        g2 = error * w3 * (1 - h2 * h2)
        g1 = (w2 @ g2) * (1 - h1 * h1)
        w1, b1 = w1 - rate * x[:, None] * g1[None, :], b1 - rate * g1
        w2, b2 = w2 - rate * h1[:, None] * g2[None, :], b2 - rate * g2
        return (w1, b1, w2, b2, w3 - rate * error * h2), error * error

    return xp.mean(xp.scan(step, (p["w1"], p["b1"], p["w2"], p["b2"], p["w3"]), (d["x"], d["y"]))[1])


def time_warping(xp, p, d):
    """Soft dynamic time warping of two learned series (Cuturi and Blondel 2017): a loop over the cells of a table inside a loop over its rows."""
    far = 1e5
    x, y = xp.tanh(d["x"] @ p["map"]), xp.tanh(d["y"] @ p["map"])
    cost = xp.sum((x[:, None, :, :] - y[None, :, :, :]) ** 2, axis=3)  # rows, columns, pairs

    def row(above, of_row):
        def cell(left, at):
            value = at[0] - xp.logsumexp(-xp.stack([left, at[1], at[2]], axis=0), 0)
            return value, value

        start = above[0] * 0 + far
        values = xp.scan(cell, start, (of_row, above[1:], above[:-1]))[1]
        return xp.concat([start[None], values], axis=0), None

    first = xp.concat([cost[0][:1] * 0, cost[0] * 0 + far], axis=0)
    return xp.mean(xp.scan(row, first, cost)[0][-1])


PROGRAMS = (gated_recurrence, attention_decoder, hidden_markov, fast_weights, transformer_block, deep_perceptron, masked_cell,
            causal_convolutions, runge_kutta, bodies, pair_energy, messages, characters, ensemble, waves, connectionist, selective_scan,
            circuit, filters, external_memory, single_samples, time_warping)  # fmt: skip
BY_NAME = {f.__name__: f for f in PROGRAMS}


def split(inputs):
    """(parameters, data) of a task's inputs, whose names begin with "p." or "d."."""
    return tuple({k[2:]: v for k, v in inputs.items() if k.startswith(start)} for start in ("p.", "d."))


def directions(name, parameters):
    """Four directions for each parameter, the same for every library."""
    return {k: rng(name, k).standard_normal((4, *v.shape)) for k, v in parameters.items()}


def results(name, parameters, loss, gradient):
    """What is compared: the loss, and the gradient by each parameter along its directions, of which each has all entries of the gradient."""
    slopes = {f"slope of {k}": np.tensordot(v, np.asarray(gradient[k], np.float64), v.ndim - 1) for k, v in directions(name, parameters).items()}
    return {"loss": np.asarray(loss, np.float64), **slopes}
