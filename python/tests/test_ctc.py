"""hl.losses.CTC: its gradient, weights, fit with sequences of unequal length, and PyTorch's loss where PyTorch is."""

import hotloop as hl
import numpy as np
import pytest


def batch(rng, rows=5, steps=12, classes=6, most=4, dtype=np.float64):
    logits = rng.normal(size=(rows, steps, classes)).astype(dtype)
    count = rng.integers(0, most + 1, size=rows)
    labels = np.where(np.arange(most) < count[:, None], rng.integers(1, classes, size=(rows, most)), -1)
    return logits, labels, rng.integers(2 * most + 1, steps + 1, size=rows)


def test_gradient_is_that_of_differences(rng):
    logits, labels, lengths = batch(rng)
    loss = hl.jit(lambda x: hl.losses.CTC()(x, labels, lengths=lengths))
    slope, step = hl.grad(loss)(logits), rng.normal(size=logits.shape)
    along = (loss(logits + 1e-6 * step) - loss(logits - 1e-6 * step)) / 2e-6
    assert np.isclose((np.asarray(slope) * step).sum(), along, rtol=1e-7)
    for row, length in enumerate(lengths):  # steps beyond a row's length have no part
        assert not np.any(slope[row, length:]) and np.all(slope[row, :length] != 0)


def test_labels_that_do_not_fit(rng):
    logits = rng.normal(size=(2, 3, 4))
    labels = np.array([[1, 1, 1], [1, 2, 3]])  # five steps at least, three
    assert np.isinf(hl.losses.CTC()(logits, labels))
    finite = hl.losses.CTC(zero_infinity=True)
    assert np.isclose(finite(logits, labels), hl.losses.CTC()(logits[1:], labels[1:]) / 2)
    slope = hl.grad(lambda x: finite(x, labels))(logits)
    assert not np.any(slope[0]) and np.all(np.isfinite(slope)) and np.any(slope[1])


def test_sample_weights_and_another_blank(rng):
    logits, labels, lengths = batch(rng)
    each = np.array([float(hl.losses.CTC()(logits[i : i + 1], labels[i : i + 1], lengths=lengths[i : i + 1])) for i in range(5)])
    weights = np.array([1.0, 0.0, 2.0, 0.5, 1.0])
    found = hl.losses.CTC()(logits, labels, lengths=lengths, sample_weights=weights)
    assert np.isclose(found, (weights * each).sum() / weights.sum(), rtol=1e-12)
    moved = np.concatenate([logits[..., 1:], logits[..., :1]], axis=-1)  # the blank last
    assert np.isclose(hl.losses.CTC(blank=5)(moved, np.where(labels > 0, labels - 1, -1), lengths=lengths), each.mean(), rtol=1e-12)


def test_a_network_learns_where_labels_are(rng):
    # Pulses of three heights, each some steps long, at places that the targets do not tell.
    rows, steps, most = 256, 20, 3
    x, labels, lengths = np.zeros((rows, steps, 1), np.float32), np.full((rows, most), -1, np.int32), np.full(rows, steps, np.int32)
    for row in range(rows):
        at = int(rng.integers(0, 3))
        for k in range(int(rng.integers(1, most + 1))):
            labels[row, k] = rng.integers(1, 4)
            width = int(rng.integers(1, 4))
            x[row, at : at + width] = labels[row, k] / 3
            at += width + int(rng.integers(1, 3))
        lengths[row] = max(at, 7)
    model = hl.nn.Sequential(hl.nn.GRU(1, 24), hl.nn.Linear(24, 4))
    loss = hl.losses.CTC()
    run = hl.fit(model, {"x": x, "y": labels, "lengths": lengths}, loss=loss, optimizer=hl.optim.Adam(1e-2), epochs=60, batch_size=32, progress=False)
    held = slice(-26, None)
    by_hand = float(loss(run.predict(x[held], lengths=lengths[held]), labels[held], lengths=lengths[held]))
    assert np.isclose(run.best_validation, by_hand, rtol=1e-4) and by_hand < 0.5
    best = np.argmax(run.predict(x, lengths=lengths), axis=-1)
    right = 0
    for row in range(rows):
        path = best[row, : lengths[row]]
        said = [int(c) for c, before in zip(path, [0, *path[:-1]]) if c not in (0, before)]
        right += said == [int(c) for c in labels[row] if c > 0]
    assert right > 0.9 * rows


def test_is_pytorchs(rng):
    torch = pytest.importorskip("torch")
    logits, labels, lengths = batch(rng, rows=8, steps=30, classes=10, most=7)
    x = torch.tensor(logits, requires_grad=True)
    theirs = torch.nn.functional.ctc_loss(
        x.log_softmax(-1).transpose(0, 1), torch.tensor(np.maximum(labels, 1)), torch.tensor(lengths), torch.tensor((labels > 0).sum(1)), reduction="none"
    ).mean()
    theirs.backward()
    loss, slope = hl.value_and_grad(lambda x: hl.losses.CTC()(x, labels, lengths=lengths))(logits)
    assert np.isclose(loss, theirs.item(), rtol=1e-12)
    assert np.allclose(slope, x.grad.numpy(), rtol=1e-9, atol=1e-12)
