"""Reverse-mode differentiation on NumPy arrays, for references: slow, small, and written for nothing else.

    x = Var(array);  loss = ((x @ w).tanh() ** 2).mean();  loss.backward();  x.grad
"""

import numpy as np


def _fit(grad, shape):
    """The gradient of what was broadcast to grad's shape."""
    if grad.ndim > len(shape):
        grad = grad.sum(tuple(range(grad.ndim - len(shape))))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and grad.shape[i] != 1)
    return grad.sum(axes, keepdims=True) if axes else grad


class Var:
    __array_priority__ = 100  # array @ Var is ours

    def __init__(self, value, parents=()):
        self.value = np.asarray(value, np.float64)
        self.parents = parents  # (Var, gradient of this -> gradient of that)
        self.grad = None

    shape = property(lambda self: self.value.shape)

    def __add__(self, other):
        other = of(other)
        return Var(self.value + other.value, ((self, lambda g: _fit(g, self.shape)), (other, lambda g: _fit(g, other.shape))))

    def __mul__(self, other):
        other = of(other)
        return Var(
            self.value * other.value,
            ((self, lambda g: _fit(g * other.value, self.shape)), (other, lambda g: _fit(g * self.value, other.shape))),
        )

    def __pow__(self, k):
        return Var(self.value**k, ((self, lambda g: g * k * self.value ** (k - 1)),))

    def __matmul__(self, other):
        other = of(other)
        return Var(self.value @ other.value, ((self, lambda g: g @ other.value.T), (other, lambda g: self.value.T @ g)))

    def __rmatmul__(self, other):
        return of(other) @ self

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + -of(other)

    def __rsub__(self, other):
        return of(other) + -self

    def __truediv__(self, other):
        return self * of(other) ** -1.0

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, index):
        def back(g):
            out = np.zeros(self.shape)
            out[index] = g
            return out

        return Var(self.value[index], ((self, back),))

    def reshape(self, *shape):
        return Var(self.value.reshape(*shape), ((self, lambda g: g.reshape(self.shape)),))

    @property
    def T(self):
        return Var(self.value.T, ((self, lambda g: g.T),))

    def tanh(self):
        y = np.tanh(self.value)
        return Var(y, ((self, lambda g: g * (1 - y * y)),))

    def sigmoid(self):
        y = 0.5 * (1 + np.tanh(0.5 * self.value))
        return Var(y, ((self, lambda g: g * y * (1 - y)),))

    def softplus(self):
        y = np.logaddexp(0, self.value)
        return Var(y, ((self, lambda g: g * 0.5 * (1 + np.tanh(0.5 * self.value))),))

    def mean(self, axis=None, keepdims=False):
        y = self.value.mean(axis, keepdims=keepdims)
        n = self.value.size / max(y.size, 1)

        def back(g):
            if axis is not None and not keepdims:
                g = np.expand_dims(g, axis)
            return np.broadcast_to(g / n, self.shape)

        return Var(y, ((self, back),))

    def backward(self):
        order, seen, stack = [], set(), [(self, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((p, False) for p, _ in node.parents)
        for node in order:
            node.grad = None
        self.grad = np.ones(self.shape)
        for node in reversed(order):
            for parent, back in node.parents:
                g = back(node.grad)
                parent.grad = g if parent.grad is None else parent.grad + g


def of(x):
    return x if isinstance(x, Var) else Var(x)


def concat(parts, axis):
    ends = np.cumsum([p.shape[axis] for p in parts])
    index = lambda i: (slice(None),) * axis + (slice(ends[i] - parts[i].shape[axis], ends[i]),)  # noqa: E731
    return Var(np.concatenate([p.value for p in parts], axis), tuple((p, lambda g, i=i: g[index(i)]) for i, p in enumerate(parts)))


def stack(parts, axis):
    return Var(np.stack([p.value for p in parts], axis), tuple((p, lambda g, i=i: np.take(g, i, axis)) for i, p in enumerate(parts)))


def value_and_grad(loss, params):
    """loss({name: Var}) and its gradient, for a dict of arrays."""
    given = {k: Var(v) for k, v in params.items()}
    out = loss(given)
    out.backward()
    return float(out.value), {k: np.zeros(v.shape) if v.grad is None else v.grad for k, v in given.items()}


def adam(loss, params, steps, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    """The losses before each of `steps` steps of Adam (Kingma and Ba 2015) and the parameters after the last."""
    p = {k: np.asarray(v, np.float64) for k, v in params.items()}
    m = {k: np.zeros(v.shape) for k, v in p.items()}
    s = {k: np.zeros(v.shape) for k, v in p.items()}
    losses = []
    for t in range(1, steps + 1):
        value, grads = value_and_grad(loss, p)
        losses.append(value)
        for k, g in grads.items():
            m[k] = beta1 * m[k] + (1 - beta1) * g
            s[k] = beta2 * s[k] + (1 - beta2) * g * g
            p[k] = p[k] - learning_rate * (m[k] / (1 - beta1**t)) / (np.sqrt(s[k] / (1 - beta2**t)) + eps)
    return np.array(losses), p
