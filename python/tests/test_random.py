"""hl.random: statistics of the generator and of what is drawn with it, and what each function takes and gives.

All keys are fixed, so a statistic is a number: each stays within five standard deviations (a Kolmogorov-Smirnov distance within what one of a
thousand samples exceeds), and the same statistics do not for generators that are bad.
"""

import math
import sys

import hotloop as hl
import numpy as np
import pytest
from hotloop import _core

KEY = hl.random.key(20261126)
N = 1 << 16


def words_of(keys):
    """The first words of each key: (keys, 8)."""
    return np.asarray(hl.jit(hl.vmap(lambda k: hl.random.bits(k, (8,))))(keys))


def standard(chi_square, freedom):
    return abs(chi_square - freedom) / math.sqrt(2 * freedom)


def uniformity(words):
    """The worst of four bytes: how far their frequencies are from equal, in standard deviations."""
    counts = [np.bincount(((words.ravel() >> shift) & 255).astype(np.int64), minlength=256) for shift in (0, 8, 16, 24)]
    expected = words.size / 256
    return max(standard(((c - expected) ** 2).sum() / expected, 255) for c in counts)


def dependence(a, b):
    """How a and b depend on each other: correlation of the numbers, bits that agree, and pairs of upper nibbles; in standard deviations."""
    a, b = a.ravel(), b.ravel()
    x, y = a / 2**32 - 0.5, b / 2**32 - 0.5
    correlation = abs((x * y).sum() * 12 / math.sqrt(len(x)))
    same = ~(a ^ b)
    agree = max(abs(2 * int(((same >> bit) & 1).sum()) - len(a)) / math.sqrt(len(a)) for bit in range(32))
    pairs = np.bincount(((a >> 28) * 16 + (b >> 28)).astype(np.int64), minlength=256)
    expected = len(a) / 256
    return max(correlation, agree, standard(((pairs - expected) ** 2).sum() / expected, 255))


def sequences():
    """Words (rows, columns) whose neighbours, of either axis, must not know of each other."""
    yield "one key", np.asarray(hl.random.bits(KEY, (1024, 512)))
    yield "split", words_of(hl.random.split(KEY, N))
    steps = np.arange(N, dtype=np.int32)
    yield "fold_in", words_of(hl.jit(hl.vmap(lambda i: hl.random.fold_in(KEY, i)))(steps))
    yield "split of split", words_of(hl.jit(hl.vmap(lambda i: hl.random.split(hl.random.split(KEY, N)[i])[1]))(steps[:8192]))
    yield "seeds", words_of(np.stack([steps.astype(np.uint32), np.zeros(N, np.uint32)], 1))
    yield "upper halves of seeds", words_of(np.stack([np.zeros(N, np.uint32), steps.astype(np.uint32)], 1))
    yield "keys one bit apart", words_of(np.stack([np.uint32(1) << (steps % 32).astype(np.uint32), (steps // 32).astype(np.uint32)], 1))


@pytest.fixture(scope="module")
def drawn():
    return dict(sequences())


NAMES = ["one key", "split", "fold_in", "split of split", "seeds", "upper halves of seeds", "keys one bit apart"]


@pytest.mark.parametrize("name", NAMES)
def test_words_are_uniform_and_independent(drawn, name):
    words = drawn[name]
    assert uniformity(words) < 5
    for step in (1, 2, 16):
        if step < words.shape[1]:
            assert dependence(words[:, :-step], words[:, step:]) < 5, f"elements {step} apart"
        assert dependence(words[:-step], words[step:]) < 5, f"rows {step} apart"


def test_the_statistics_find_bad_generators():
    counter = np.arange(N * 8, dtype=np.uint32)
    weyl = (counter * np.uint32(0x9E3779B9)).reshape(N, 8)  # uniform; a step of the sequence is one number
    assert dependence(weyl[:, :-1], weyl[:, 1:]) > 50
    linear = ((counter * np.uint32(1664525) + np.uint32(1013904223)) ^ (counter >> 16)).reshape(N, 8)
    assert dependence(linear[:-1], linear[1:]) > 50
    biased = np.asarray(hl.random.bits(KEY, (N, 8))) | np.uint32(0x01000000)
    assert uniformity(biased) > 50
    one_round = np.asarray([((0xD256D193 * i) >> 32) ^ ((0xD256D193 * i) & 0xFFFFFFFF) for i in range(N)], np.uint64).astype(np.uint32)
    assert dependence(one_round[:-1], one_round[1:]) > 50


def test_keys_differ():
    for keys in (hl.random.split(KEY, N), hl.jit(hl.vmap(lambda i: hl.random.fold_in(KEY, i)))(np.arange(N, dtype=np.int32))):
        assert len(np.unique(np.asarray(keys).view(np.uint64))) == N
    # One bit of the data or of the key changes half of the bits.
    base = np.asarray(hl.random.fold_in(KEY, 12345))
    flipped = [np.asarray(hl.random.fold_in(KEY, 12345 ^ (1 << bit))) for bit in range(32)]
    changed = [int(np.unpackbits((base ^ other).view(np.uint8)).sum()) for other in flipped]
    assert abs(np.mean(changed) - 32) < 5 * 4 / math.sqrt(32) and min(changed) > 32 - 5 * 4


def test_folded_keys_are_no_children_of_split():
    def words(keys):
        return {tuple(key.tolist()) for key in np.asarray(keys).reshape(-1, 2)}

    children = np.asarray(hl.random.split(KEY, 64))
    tree = words(children) | {pair for child in children for pair in words(hl.random.split(child, 64))}
    assert not words([np.asarray(hl.random.fold_in(KEY, i)) for i in range(64)]) & tree


def test_batches_and_shapes_do_not_change_bits():
    keys = np.asarray(hl.random.split(KEY, 5))
    for shape in ((), (3,), (4, 5), (33,)):
        together = np.asarray(hl.vmap(lambda k, s=shape: hl.random.normal(k, s))(keys))
        assert np.array_equal(together, [np.asarray(hl.random.normal(k, shape)) for k in keys])
    long = np.asarray(hl.random.bits(KEY, 1000))
    assert np.array_equal(long[:37], hl.random.bits(KEY, 37)) and np.array_equal(long.reshape(8, 125), hl.random.bits(KEY, (8, 125)))
    per_step = hl.jit(lambda k: hl.scan(lambda c, i: (c, hl.random.uniform(hl.random.fold_in(k, i), (7,))), 0.0, np.arange(6))[1])
    assert np.array_equal(per_step(KEY), [np.asarray(hl.random.uniform(hl.random.fold_in(KEY, i), (7,))) for i in range(6)])


@pytest.mark.parametrize("shape", [(50_001,), (700, 65), (3, 9001), (40, 16, 16)])
def test_threads_targets_and_backends_do_not_change_bits(shape):
    def draw(k):
        return hl.random.bits(k, shape), hl.random.uniform(k, shape, dtype="float64"), hl.random.bits(k, shape)[..., 1:].sum(-1)

    wanted = [np.asarray(r) for r in hl.jit(draw, threads=1)(KEY)]
    for options in ({"threads": 2}, {"target": "avx2"}, {"target": "portable"}, {"backend": "c"}, {"backend": "interp"}):
        assert all(np.array_equal(a, b) for a, b in zip(hl.jit(draw, **options)(KEY), wanted)), options


def phi(x):
    return 0.5 * np.vectorize(math.erfc)(-np.asarray(x, np.float64) / math.sqrt(2))


def density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


MEAN_OF_TRUNCATED = (density(-1) - density(2)) / (phi(2) - phi(-1))
DISTRIBUTIONS = {
    "uniform": (lambda k, n, d: hl.random.uniform(k, n, dtype=d), lambda x: x, 0.5, 1 / 12),
    "normal": (lambda k, n, d: hl.random.normal(k, n, dtype=d), phi, 0, 1),
    "exponential": (lambda k, n, d: hl.random.exponential(k, n, dtype=d), lambda x: -np.expm1(-x), 1, 1),
    "gumbel": (lambda k, n, d: hl.random.gumbel(k, n, dtype=d), lambda x: np.exp(-np.exp(-x)), 0.5772156649, math.pi**2 / 6),
    "laplace": (lambda k, n, d: hl.random.laplace(k, n, dtype=d), lambda x: np.where(x < 0, np.exp(x) / 2, 1 - np.exp(-x) / 2), 0, 2),
    "logistic": (lambda k, n, d: hl.random.logistic(k, n, dtype=d), lambda x: 1 / (1 + np.exp(-x)), 0, math.pi**2 / 3),
    "truncated": (
        lambda k, n, d: hl.random.truncated_normal(k, -1.0, 2.0, (n,), dtype=d),
        lambda x: (phi(x) - phi(-1)) / (phi(2) - phi(-1)),
        MEAN_OF_TRUNCATED, 1 - (density(-1) + 2 * density(2)) / (phi(2) - phi(-1)) - MEAN_OF_TRUNCATED**2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name, dtype):
    draw, cumulative, mean, variance = DISTRIBUTIONS[name]
    n = 200_000
    x = np.asarray(draw(KEY, n, dtype))
    assert x.dtype == dtype and np.isfinite(x).all()
    x = np.sort(x.astype(np.float64))
    assert abs(x.mean() - mean) < 5 * math.sqrt(variance / n)
    fourth = ((x - mean) ** 4).mean()
    assert abs(((x - mean) ** 2).mean() - variance) < 5 * math.sqrt((fourth - variance**2) / n)
    reached = cumulative(x)
    distance = max((np.arange(1, n + 1) / n - reached).max(), (reached - np.arange(n) / n).max())
    assert distance * math.sqrt(n) < 1.95
    if name != "truncated":  # whose bounds are constants there, folded by the interpreter
        assert np.array_equal(hl.jit(lambda k: draw(k, 50, dtype))(KEY), draw(KEY, 50, dtype))


def test_normal_has_its_tails_and_no_correlation():
    x = np.asarray(hl.random.normal(KEY, 4_000_000)).astype(np.float64)
    for bound in (2, 3, 4):
        expected = x.size * math.erfc(bound / math.sqrt(2))
        assert abs((abs(x) > bound).sum() - expected) < 5 * math.sqrt(expected)
    assert 5 < abs(x).max() < 5.5
    for step in (1, 2, 16, 32):
        assert abs((x[:-step] * x[step:]).mean()) * math.sqrt(x.size) < 5
        assert abs(((x[:-step] ** 2 - 1) * (x[step:] ** 2 - 1)).mean() / 2) * math.sqrt(x.size) < 5


def test_truncated_normal():
    lower = np.array([-math.inf, 0.0, 3.0, -0.1, 2.5], np.float32)
    upper = np.array([-2.0, math.inf, math.inf, 0.1, 2.6], np.float32)
    x = np.asarray(hl.random.truncated_normal(KEY, lower, upper, (100_000, 5)))
    assert np.isfinite(x).all() and (x >= lower).all() and (x <= upper).all()
    assert np.array_equal(hl.jit(lambda *a: hl.random.truncated_normal(*a, (50, 5)))(KEY, lower, upper), hl.random.truncated_normal(KEY, lower, upper, (50, 5)))
    assert np.shape(hl.random.truncated_normal(KEY, lower[:, None], upper[:2])) == (5, 2)
    # d/db of a sample at a fixed quantile: (F(x) - F(a)) / (F(b) - F(a)) does not change.
    slope = hl.grad(lambda b: hl.random.truncated_normal(KEY, -1.0, b, (), dtype="float64"))(np.float64(2.0))
    x = np.float64(hl.random.truncated_normal(KEY, -1.0, 2.0, (), dtype="float64"))
    assert np.isclose(slope, (phi(x) - phi(-1)) / (phi(2) - phi(-1)) * math.exp((x * x - 4) / 2), rtol=1e-9)


@pytest.mark.parametrize(("dtype", "far"), [("float32", 12), ("float64", 37)])
def test_truncated_normal_has_its_tails(dtype, far):
    tail = np.vectorize(lambda x: math.erfc(x * math.sqrt(0.5)))
    for bound in (5.0, 8.0, far - 0.5):
        x = np.sort(np.asarray(hl.random.truncated_normal(KEY, bound, math.inf, (20_000,), dtype=dtype)).astype(np.float64))
        assert (x >= bound).all() and np.unique(x).size > 15_000
        reached = 1 - tail(x) / tail(bound)
        distance = max((np.arange(1, x.size + 1) / x.size - reached).max(), (reached - np.arange(x.size) / x.size).max())
        assert distance * math.sqrt(x.size) < 1.95
        below = np.asarray(hl.random.truncated_normal(KEY, -math.inf, -bound, (1000,), dtype=dtype))
        assert (below <= -bound).all() and np.isfinite(below).all()
    assert np.array_equal(hl.random.truncated_normal(KEY, 40.0, 50.0, (3,), dtype=dtype), np.full(3, 40, dtype))
    assert np.array_equal(hl.random.truncated_normal(KEY, -50.0, -40.0, (3,), dtype=dtype), np.full(3, -40, dtype))


def test_bernoulli_of_small_probabilities():
    # Of 24 bits it would be almost twice as often: 64 in place of 34.
    p, n = np.float64(1.05 * 2.0**-24), 1 << 29
    count = hl.jit(lambda k, p: hl.scan(lambda c, i: (c + hl.random.bernoulli(hl.random.fold_in(k, i), p, (1 << 22,)).astype(hl.int32).sum(), None), 0, np.arange(n >> 22))[0])
    expected = n * p
    assert abs(int(count(KEY, p)) - expected) < 4 * math.sqrt(expected)
    assert abs(n - int(count(KEY, 1 - p)) - expected) < 4 * math.sqrt(expected)
    for dtype in (np.float32, np.float64):
        assert np.asarray(hl.random.bernoulli(KEY, np.repeat(dtype([0, 1]), 1 << 20))).reshape(2, -1).sum(1).tolist() == [0, 1 << 20]
    # A threshold of few bits needs only the upper ones.
    assert np.array_equal(hl.random.bernoulli(KEY, 0.375, (1000,)), np.asarray(hl.random.uniform(KEY, (1000,))) < 0.375)
    assert not np.asarray(hl.random.bernoulli(KEY, math.nan, (1000,))).any()


def test_randint():
    for low, high in ((0, 7), (-3, 2), (-(2**31), 0), (0, 2**31), (5, 6), (-(2**31), 2**31), (-(2**31), 2**31 - 1), (-7, 2**31)):
        x = np.asarray(hl.random.randint(KEY, (100_000,), low, high)).astype(np.int64)
        assert x.min() >= low and x.max() < high
        if high - low < 10:
            counts = np.bincount(x - low, minlength=high - low)
            expected = len(x) / (high - low)
            assert high - low == 1 or ((counts - expected) ** 2).sum() / expected < 30
        else:
            assert abs((x - low).mean() / (high - low) - 0.5) < 5 / math.sqrt(12 * len(x))
    for low, high in ((2, 2), (0, 2**31 + 1), (2**31 - 1, 2**31 + 1)):
        with pytest.raises(hl.UserError, match="low and high must be in .*, and high above low"):
            hl.random.randint(KEY, (3,), low, high)
    words = np.asarray(hl.random.bits(KEY, (1000, 2))).astype(object)
    for low, high in ((-(2**31), 2**31), (-(2**31), 2**31 - 1), (0, 2**31), (-5, 1_000_000)):
        wanted = [low + ((int(a) * (high - low) + (int(b) * (high - low) >> 32)) >> 32) for a, b in words]
        assert np.asarray(hl.random.randint(KEY, (1000,), low, high)).tolist() == wanted


def test_randint_between_arrays():
    draw, low, high = hl.random.randint, np.array([-(2**31), 0, 3]), np.array([[2**31, 2, 3], [5, 1, 1000]])
    wanted = np.asarray([[[int(np.asarray(draw(KEY, (50, 2, 3), int(a), max(int(b), int(a) + 1)))[r, i, j]) for j, (a, b) in enumerate(zip(low, row))] for i, row in enumerate(high)] for r in range(50)])
    assert np.array_equal(draw(KEY, (50, 2, 3), low, high), wanted)  # where high is low: low
    assert np.array_equal(hl.jit(lambda a, b: draw(KEY, (50, 2, 3), a, b))(low, high), wanted)
    assert np.array_equal(hl.jit(lambda n: draw(KEY, (9,), 0, n))(7), draw(KEY, (9,), 0, 7)) and np.array_equal(draw(KEY, (9,), 0, np.uint8(7)), draw(KEY, (9,), 0, 7))
    for bad in (np.ones(2, int), 1.5, np.ones((1, 3), int)):
        with pytest.raises(hl.UserError, match=r"\[random\] high must be integers that broadcast to the shape \(3,\)"):
            draw(KEY, (3,), 0, bad)


def test_categorical():
    logits = np.log(np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], np.float32)) + 3
    x = np.asarray(hl.random.categorical(KEY, logits, shape=(50_000, 2)))
    assert x.dtype == np.int32 and x.shape == (50_000, 2)
    for row in range(2):
        expected = 50_000 * np.exp(logits[row].astype(np.float64) - 3)
        assert ((np.bincount(x[:, row], minlength=4) - expected) ** 2 / expected).sum() < 25
    assert np.shape(hl.random.categorical(KEY, logits)) == (2,)
    assert np.shape(hl.random.categorical(KEY, logits, axis=0)) == (4,)
    assert np.shape(hl.random.categorical(KEY, logits[0])) == ()
    masked = np.array([0.0, -np.inf, 1.0], np.float32)
    assert not (np.asarray(hl.random.categorical(KEY, masked, shape=(1000,))) == 1).any()
    assert np.array_equal(hl.random.categorical(KEY, logits.T, axis=0, shape=(9, 2)).shape, (9, 2))
    with pytest.raises(hl.UserError, match=r"shape must end as that of the logits without their axis, \(2,\)"):
        hl.random.categorical(KEY, logits, shape=(3,))
    with pytest.raises(hl.UserError, match="the axis must be one of the array's 2 axes. Received: 2"):
        hl.random.categorical(KEY, logits, axis=2)


def test_permutation():
    order = np.asarray(hl.random.permutation(KEY, 1000))
    assert order.dtype == np.int32 and np.array_equal(np.sort(order), np.arange(1000)) and not np.array_equal(order, np.arange(1000))
    orders = np.asarray(hl.vmap(lambda k: hl.random.permutation(k, 4))(hl.random.split(KEY, 24_000)))
    counts = np.unique(orders @ [64, 16, 4, 1], return_counts=True)[1]
    assert len(counts) == 24 and ((counts - 1000) ** 2 / 1000).sum() < 23 + 5 * math.sqrt(46)
    x = np.arange(12.0).reshape(3, 4)
    shuffled = np.asarray(hl.random.permutation(KEY, x, axis=1))
    assert np.array_equal(np.sort(shuffled, 1), x) and np.array_equal(shuffled[1] - shuffled[0], np.full(4, 4.0))
    assert np.shape(hl.random.permutation(KEY, 0)) == (0,)
    assert np.array_equal(hl.jit(lambda k, v: hl.random.permutation(k, v))(KEY, x), hl.random.permutation(KEY, x))
    with pytest.raises(hl.UserError, match="the axis must be one of the array's 2 axes. Received: 2"):
        hl.random.permutation(KEY, x, axis=2)


def test_choice():
    assert np.shape(hl.random.choice(KEY, 5)) == ()
    x = np.asarray(hl.random.choice(KEY, 5, (100, 1000)))
    assert x.dtype == np.int32 and ((np.bincount(x.ravel(), minlength=5) - 20_000) ** 2 / 20_000).sum() < 25
    without = np.asarray(hl.random.choice(KEY, 9, (9,), replace=False))
    assert np.array_equal(np.sort(without), np.arange(9))
    p = np.array([0.5, 0.0, 0.3, 0.2], np.float32)
    counts = np.bincount(np.asarray(hl.random.choice(KEY, 4, (100_000,), p=p)), minlength=4)
    assert counts[1] == 0 and (((counts - 100_000 * p) ** 2)[p > 0] / (100_000 * p[p > 0])).sum() < 25
    # Two of three without replacement: the first one is i with probability p_i, the second one j with p_j / (1 - p_i).
    pairs = np.asarray(hl.vmap(lambda k: hl.random.choice(k, 4, (2,), replace=False, p=p))(hl.random.split(KEY, 50_000)))
    for i in (0, 2, 3):
        for j in (0, 2, 3):
            expected = 50_000 * float(p[i]) * float(p[j]) / (1 - float(p[i])) if i != j else 0
            assert abs(((pairs[:, 0] == i) & (pairs[:, 1] == j)).sum() - expected) <= 5 * math.sqrt(expected)
    rows = np.arange(24.0).reshape(2, 3, 4)
    assert np.shape(hl.random.choice(KEY, rows, (5, 6), axis=1)) == (2, 5, 6, 4)
    assert set(np.asarray(hl.random.choice(KEY, np.array([3.0, 7.0]), (100,))).tolist()) == {3.0, 7.0}
    with pytest.raises(hl.UserError, match="3 are too few to choose 4 from"):
        hl.random.choice(KEY, 3, (4,), replace=False)
    with pytest.raises(hl.UserError, match="p must have a number for each of 3"):
        hl.random.choice(KEY, 3, (4,), p=np.ones(4))



def test_names_of_other_libraries():
    for name, meant in (("PRNGKey", "key"), ("randn", "normal"), ("shuffle", "permutation"), ("multinomial", "choice"), ("integers", "randint"), ("categorial", "categorical")):
        with pytest.raises(AttributeError, match=f"hotloop.random.{meant}$"):
            getattr(hl.random, name)
    with pytest.raises(TypeError, match="Try: low"):
        hl.random.uniform(KEY, (3,), minval=-1.0)
    assert np.array_equal(hl.random.normal(KEY, shape=(3,)), hl.random.normal(KEY, (3,)))


def test_keys_of_traced_seeds():
    seeds = np.array([0, 3, -1, -(2**31), 2**31 - 1, 2**40 + 5, -(2**63), 2**63 - 1])
    wanted = np.stack([hl.random.key(int(seed)) for seed in seeds])
    assert np.array_equal(hl.jit(hl.vmap(hl.random.key))(seeds), wanted)
    assert np.array_equal(hl.jit(hl.random.key)(int(seeds[5])), wanted[5])
    assert np.array_equal(hl.jit(hl.random.key)(np.int32(-1)), wanted[2])
    assert np.array_equal(hl.jit(hl.random.key)(np.uint32(2**32 - 1)), hl.random.key(2**32 - 1))
    for seed, received in ((np.float32(1), r"f32\[\]. Try: seed.astype\(hl.int64\)"), (np.arange(3), r"i64\[3\]. Try: hl.vmap\(hl.random.key\)\(seeds\)")):
        with pytest.raises(hl.UserError, match=rf"^\[random\] a seed must be one integer. Received: a traced {received}.$"):
            hl.jit(hl.random.key)(seed)


def test_bounds_are_no_programs_of_their_own():
    for name, low, high in (("_draws._uniform", [0.5, 1, -3], [2.5, 7.25, 4]), ("random._randint", [0, -5, 7], [9, 3, 2**31])):
        module, function = name.split(".")
        function = getattr(sys.modules[f"hotloop.{module}"], function)
        draw = hl.random.uniform if module == "_draws" else hl.random.randint
        draw(KEY, (3,), low=low[0], high=high[0])
        before = _core.num_specializations(function)
        for a, b in zip(low, high):
            drawn = np.asarray(draw(KEY, (3,), low=a, high=b))
            assert np.array_equal(drawn, hl.jit(lambda key, draw=draw, a=a, b=b: draw(key, (3,), low=a, high=b))(KEY))
            assert drawn.dtype == (np.float32 if module == "_draws" else np.int32) and np.all((a <= drawn) & (drawn < b))
        assert _core.num_specializations(function) == before
    assert hl.random.uniform(KEY, (2,), low=np.float64(1), high=np.float64(2)).dtype == hl.float32
    assert np.all(np.asarray(hl.random.uniform(KEY, (2,), low=2.0, high=1.0)) <= 2)
