"""Programs as users write them, once for every library: `xp` has the functions of the array API standard that they need, and scan,
sigmoid, softmax, logsumexp, take_rows and one_hot besides (tasks/programs.py has them for NumPy). Each gives a loss, of parameters (a dict) and data (a dict).

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


PROGRAMS = (gated_recurrence, attention_decoder, hidden_markov, fast_weights, transformer_block, deep_perceptron, masked_cell,
            causal_convolutions, runge_kutta, bodies, pair_energy, messages, characters, ensemble, waves)  # fmt: skip
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
