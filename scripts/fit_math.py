#!/usr/bin/env python3
"""Coefficients of src/schedule/math: minimax polynomials (needs mpmath).

Each fit minimises max |weight(x) * (f(x) - p(x))|. For f32 the coefficients are rounded one after the other, lowest
first, and the rest fitted again, so that the rounding of one is made good by the next.
"""

import struct
from functools import cache

from mpmath import (
    asin,
    atan,
    cos,
    cosh,
    coth,
    erf,
    erfc,
    exp,
    expm1,
    log,
    log1p,
    lu_solve,
    matrix,
    mp,
    mpf,
    pi,
    sin,
    sinh,
    sqrt,
)

mp.dps = 60


def lawson(rows, rest, rounds):
    """The combination of columns nearest to `rest`, its greatest error least: Lawson's reweighted least squares."""
    n, m = len(rows[0]), len(rows)
    importance = [mpf(1) / m] * m
    best = None
    for _ in range(rounds):
        normal, right = matrix(n, n), matrix(n, 1)
        for i, row in enumerate(rows):
            for j in range(n):
                scaled = importance[i] * row[j]
                right[j] += scaled * rest[i]
                for k in range(j, n):
                    normal[j, k] += scaled * row[k]
        for j in range(n):
            for k in range(j):
                normal[j, k] = normal[k, j]
        solution = lu_solve(normal, right)
        errors = [abs(r - sum(row[j] * solution[j] for j in range(n))) for row, r in zip(rows, rest)]
        if best is None or max(errors) < best[1]:
            best = ([solution[j] for j in range(n)], max(errors))
        importance = [w * e for w, e in zip(importance, errors)]
        total = sum(importance)
        if total == 0:
            break
        importance = [w / total for w in importance]
    return best


def minimax(f, weight, degree, low, high, fixed=()):
    """c[0..degree] with c[:len(fixed)] given."""
    free = list(range(len(fixed), degree + 1))
    m = 160
    low, high = mpf(low), mpf(high)
    xs = [(low + high) / 2 - (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * m)) for i in range(m)]
    rows = [[weight(x) * x**k for k in free] for x in xs]
    rest = [weight(x) * (f(x) - sum(c * x**i for i, c in enumerate(fixed))) for x in xs]
    found, error = lawson(rows, rest, 25)
    return list(fixed) + found, error


def rounded(value, single):
    return mpf(struct.unpack("f", struct.pack("f", float(value)))[0]) if single else mpf(float(value))


def fit(name, f, weight, degree, low, high, single, fixed=()):
    fixed = [mpf(c) for c in fixed]
    while True:
        c, error = minimax(f, weight, degree, low, high, fixed)
        if not single:
            fixed = [rounded(ci, single) for ci in c]
            break
        fixed = c[: len(fixed)] + [rounded(c[len(fixed)], single)]
        if len(fixed) == degree + 1:
            break
    points = [mpf(low) + (mpf(high) - mpf(low)) * i / 2000 for i in range(2001)]
    error = max(abs(weight(x) * (f(x) - sum(ci * x**i for i, ci in enumerate(fixed)))) for x in points if x != 0)
    text = ", ".join(float(ci).hex() for ci in fixed)
    print(f"{name}: error {float(error):.3g}\n  {{{text}}}")


ln2 = log(2)


def tail(f, terms):
    """(f(x) - sum of its first terms) / x^len, by a series where cancellation would bite."""
    return lambda x: (f(x) - sum(c * x**i for i, c in enumerate(terms))) / x ** len(terms)


half = mpf(1) / 2
# f32: degrees of the tails q and g below; the whole polynomial has two more (log: three more).
for single, d_exp, d_expm1, d_log in ((True, 4, 4, 7), (False, 9, 10, None)):
    t = "f32" if single else "f64"
    # exp(r) = 1 + r + r^2 q(r), |r| <= ln 2 / 2
    fit(f"exp {t}", tail(exp, [1, 1]), lambda x: x**2 / exp(x), d_exp, -ln2 * 0.50005, ln2 * 0.50005, single)
    # expm1(r) = r + r^2 g(r)
    fit(f"expm1 {t}", tail(expm1, [0, 1]), lambda x: abs(x**2 / expm1(x)), d_expm1, -ln2 * 0.50005, ln2 * 0.50005, single)
    if d_log:
        # log(1 + f) = f - f^2 / 2 + f^3 R(f)
        fit(f"log {t}", tail(log1p, [0, 1, -half]), lambda x: x**3 / log1p(x), d_log, mpf(2) ** -half - 1, mpf(2) ** half - 1, single)
# r coth r = 1 + s K(s), s = r^2: tanh and sigmoid
def coth_k(s):
    r = s**half
    return (r * coth(r) - 1) / s


for name, degree, single, most in (("f32", 1, True, 0.250025), ("f64", 4, False, 0.250025), ("f64, wide", 5, False, 0.37505)):
    fit(f"r coth r {name}", coth_k, lambda s: s, degree, mpf("1e-12"), (ln2 * most) ** 2, single)


# C = 1 + c[0] r^2 + ... and S = r (1 + s[0] r^2 + ...) with (C + S) / (C - S) = e^(2r), |r| <= most: S cosh r - C sinh r vanishes, and the double of it
# is how far the fraction is from there.
def fit_even_odd(name, degree, most, single):
    m = 160
    points = [most * cos(pi * (2 * i + 1) / (4 * m)) for i in range(m)]
    powers = range(1, degree + 1)
    rows = [[-2 * sinh(r) * r ** (2 * k) for k in powers] + [2 * cosh(r) * r ** (2 * k + 1) for k in powers] for r in points]
    fixed = []
    while len(fixed) < 2 * degree:
        rest = [2 * (sinh(r) - r * cosh(r)) - sum(c * v for c, v in zip(fixed, row)) for r, row in zip(points, rows)]
        found, error = lawson([row[len(fixed) :] for row in rows], rest, 40)
        fixed += [rounded(found[0], single)] if single else found
    print(f"{name}: error {float(error):.3g}")
    for part, values in (("C", fixed[:degree]), ("S", fixed[degree:])):
        print(f"  {part} {{{', '.join(float(v).hex() for v in values)}}}")


fit_even_odd("e^2r f32, fma", 1, ln2 / 4, True)
fit_even_odd("e^2r f64, fma", 2, ln2 / 4, False)


# log(1 + f) = 2 s + s R(s^2), s = f / (2 + f)
def log_r(z):
    s = z**half
    return (log((1 + s) / (1 - s)) - 2 * s) / (s * z)
smax = (mpf(2) ** half - 1) / (1 + mpf(2) ** half)
fit("log f64, R / z", log_r, lambda z: z / 2, 6, mpf("1e-12"), smax**2, False)


# atan(u) = u + u z g(z), z = u^2, |u| <= tan(pi / 8): src/ops/composed/angles.cpp
def atan_g(z):
    u = z**half
    return (atan(u) - u) / (u * z)


for single, degree in ((True, 4), (False, 10)):
    fit(f"atan {'f32' if single else 'f64'}", atan_g, lambda z: z, degree, mpf("1e-12"), (mpf(2) ** half - 1) ** 2, single)


# asin(u) = u + u z g(z), z = u^2, |u| <= 1/2
def asin_g(z):
    u = z**half
    return (asin(u) - u) / (u * z)


for single, degree in ((True, 4), (False, 11)):
    fit(f"asin {'f32' if single else 'f64'}", asin_g, lambda z: z ** (3 * half) / asin(z**half), degree, mpf("1e-12"), mpf("0.25"), single)


# pow of f32, in f64: log2 m = s G(s^2), s = (m - 1) / (m + 1), and 2^r
def log2_g(z):
    s = z**half
    return (log1p(s) - log1p(-s)) / (ln2 * s)


fit("log2 for pow", log2_g, lambda z: 1 / log2_g(z), 5, mpf("1e-12"), smax**2, False)
fit("2^r for pow", lambda r: mpf(2) ** r, lambda r: mpf(2) ** -r, 7, -half, half, False)


# erf(x) = x + x Q(x^2) near 0, else 1 - 2^p(x), p = log2(erfc): with the weight that it has in the result.
def erf_q(s):
    x = s**half
    return erf(x) / x - 1


for t, single, near, q_degree, far, p_degree, power_degree in (("f32", True, "1.125", 6, 4, 5, 5), ("f64", False, "1.0625", 12, "5.95", 16, 10)):
    mp.dps = 60 if single else 110
    fit(f"erf {t}, near", erf_q, lambda s: s**half / erf(s**half), q_degree, mpf("1e-12"), mpf(near) ** 2, single)
    fit(f"log2 erfc {t}", lambda x: log(erfc(x)) / log(2), lambda x: erfc(x) * log(2), p_degree, near, far, single)
    fit(f"2^r {t}", lambda r: mpf(2) ** r, lambda r: mpf(2) ** -r, power_degree, -half, half, single, fixed=(1,))
mp.dps = 60


# sin(r) = r + r s (c[0] + ...) and cos(r) = 1 + s (-1/2 + ...), s = r^2, |r| <= pi / 4 and what the rounding of the number of turns adds
def sin_c(s):
    return (sin(s**half) - s**half) / (s**half * s)


def cos_c(s):
    return (cos(s**half) - 1) / s


for t, single, more, sin_degree, cos_degree in (("f32", True, "4e-3", 2, 3), ("f64", False, "1e-8", 5, 6)):
    most = (pi / 4 * (1 + mpf(more))) ** 2
    fit(f"sin {t}", sin_c, lambda s: s ** (3 * half) / sin(s**half), sin_degree, mpf("1e-12"), most, single)
    fit(f"cos {t}", cos_c, lambda s: s / cos(s**half), cos_degree, mpf("1e-12"), most, single, fixed=(-0.5,))


# erfinv(x) / x with w = -log(1 - x^2), less a line of w.
def erfinv_ratio(w):
    q = exp(-w) / (1 + sqrt(-expm1(-w)))  # 1 - x
    y = sqrt(w - log(pi * w) / 2) if w > 2 else sqrt(pi) / 2 * sqrt(w)
    for _ in range(12):
        step = (q - erfc(y)) / (2 / sqrt(pi) * exp(-y * y))
        y -= step / (1 + y * step)
    return y / (1 - q)


# f(x) = constant + slope x + P(x) / Q(x): least squares of P - (f - line) Q over Chebyshev points, each weighted by its error, by 1 / f and by the Q
# before. Q is rounded, then P fitted.
def fit_quotient(name, f, line, degree_p, degree_q, low, high, single, rounds):
    m = 160
    xs = [(low + high) / 2 - (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * m)) for i in range(m)]
    fs = [f(x) for x in xs]
    parts = [value - line[0] - line[1] * x for value, x in zip(fs, xs)]
    importance, before, best = [mpf(1) / m] * m, [mpf(1)] * m, None
    for _ in range(rounds):
        size = degree_p + 1 + degree_q
        normal, right = matrix(size, size), matrix(size, 1)
        for x, value, part, weight, q in zip(xs, fs, parts, importance, before):
            row = [x**i / (value * q) for i in range(degree_p + 1)] + [-part * x**j / (value * q) for j in range(1, degree_q + 1)]
            for i in range(size):
                right[i] += weight * row[i] * part / (value * q)
                for j in range(size):
                    normal[i, j] += weight * row[i] * row[j]
        solution = list(lu_solve(normal, right))
        p, q = solution[: degree_p + 1], [mpf(1), *solution[degree_p + 1 :]]
        before = [sum(c * x**i for i, c in enumerate(q)) for x in xs]
        errors = [abs((sum(c * x**i for i, c in enumerate(p)) / b - g) / v) for x, b, g, v in zip(xs, before, parts, fs)]
        if best is None or max(errors) < best[0]:
            best = max(errors), q
        importance = [w * (e + max(errors) / 50) for w, e in zip(importance, errors)]
        total = sum(importance)
        importance = [w / total for w in importance]
    q = [rounded(c, single) for c in best[1]]
    print(f"{name}, Q: error {float(best[0]):.3g} before rounding\n  {{{', '.join(float(c).hex() for c in q)}}}")

    def denominator(x):
        return sum(c * x**i for i, c in enumerate(q))

    fit(
        f"{name}, P",
        lambda x: (f(x) - line[0] - line[1] * x) * denominator(x),
        lambda x: 1 / (f(x) * denominator(x)),
        degree_p,
        low,
        high,
        single,
    )


tiny = mpf("1e-20")
fit_quotient("erfinv f32", erfinv_ratio, (mpf(59) / 64, mpf(51) / 256), 5, 5, tiny, mpf(16), True, 60)
fit_quotient("erfinv f64", erfinv_ratio, (mpf(65) / 64, mpf(5) / 32), 15, 14, tiny, mpf("36.1"), False, 24)


# ndtri(p), w = -log(4 p (1 - p)): over 2 p - 1 as far as the bend, over sqrt(w) beyond, there by v = 1 / sqrt(w); and in f32 its derivative times
# 4 p (1 - p), beyond times sqrt(w) min(p, 1 - p). Polynomials of w - 2 and of v - 1/4 in f32, quotients of w and of v - 1/8 in f64.
@cache
def of_quantile(w):
    ratio, x = sqrt(2) * erfinv_ratio(w), sqrt(-expm1(-w))
    slope = sqrt(2 * pi) * exp((ratio * x) ** 2 / 2)
    root = sqrt(w)
    return ratio, slope * exp(-w), ratio * x / root, slope * root * exp(-w) / (2 * (1 + x))


for name, i in (("quotient", 0), ("slope", 1)):
    near, far = lambda t, i=i: of_quantile(t + 2)[i], lambda t, i=i: of_quantile((t + half / 2) ** -2)[i + 2]
    fit(f"ndtri f32, {name}", near, lambda t, f=near: 1 / f(t), 9, tiny - 2, 3, True)
    fit(f"ndtri f32, {name} of the tail", far, lambda t, f=far: 1 / f(t), 9, 1 / sqrt(147 * ln2) - half / 2, 1 / sqrt(mpf(5)) - half / 2, True)
fit_quotient("ndtri f64", lambda w: of_quantile(w)[0], (mpf(91) / 64, mpf(1) / 4), 12, 11, tiny, mpf(16), False, 16)
eighth = mpf(1) / 8
fit_quotient("ndtri f64, tail", lambda t: of_quantile((t + eighth) ** -2)[2], (mpf(181) / 128, mpf(0)), 12, 11, 1 / sqrt(mpf(746)) - eighth, eighth, False, 20)


# exp(t t) erfc(t) of t >= 0 is P(u) / (1 + 2 t), u = (t - k) / (t + k); beside it erf(x) / x near 0, and (ndtr(x) - 1/2) / x, s = x^2, with the weight in erfc and
# in ndtr.
def scaled_complement(t):
    if t < 60:
        return exp(t * t) * erfc(t)
    total, term = mpf(1), mpf(1)
    for i in range(1, 20):
        term *= -(2 * i - 1) / (2 * t * t)
        total += term
    return total / (t * sqrt(pi))


def of_half_line(k):
    def f(u):
        if 1 - u < mpf("1e-12"):
            return 2 / sqrt(pi)
        t = k * (1 + u) / (1 - u)
        return (1 + 2 * t) * scaled_complement(t)

    return f


mp.dps = 50
for t, single, k, degree, near_degree in (("f32", True, mpf(2), 11, 4), ("f64", False, mpf(3), 23, 9)):
    g = of_half_line(k)
    fit(f"scaled complement {t}", g, lambda u, g=g: 1 / g(u), degree, -1, 1, single)
    fit(f"erf {t}, |x| < 0.5", lambda s: erf_q(s) + 1, lambda s: s**half / erfc(s**half), near_degree, mpf("1e-12"), mpf("0.25"), single)
    fit(
        f"ndtr {t}, |x| < 0.7",
        lambda s: erf(sqrt(s / 2)) / (2 * sqrt(s)),
        lambda s: 2 * sqrt(s) / erfc(sqrt(s / 2)),
        near_degree,
        mpf("1e-12"),
        mpf("0.49"),
        single,
    )
