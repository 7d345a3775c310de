"""hl.fit: what a run leaves to go on from: checkpoints, pickles, and what an interruption spares."""

import copy
import json
import pickle
import re
import signal
import threading
import time

import hotloop as hl
import numpy as np
import pytest
from crc32c import crc32c
from small_fits import model, same, sums_of_steps


@pytest.fixture
def data(rng):
    return sums_of_steps(rng)


def test_resume_is_exact(data, tmp_path):
    options = {"optimizer": hl.optim.Adam(1e-2), "batch_size": 16, "progress": False}
    whole = hl.fit(model(), data, epochs=4, **options)
    first = hl.fit(model(), data, epochs=2, checkpoints=tmp_path, **options)
    for resume in (first, first.state, tmp_path, pickle.loads(pickle.dumps(first)), copy.deepcopy(first.state)):
        rest = hl.fit(model(), data, epochs=4, resume=resume, **options)
        assert same(whole.state.params, rest.state.params)
        assert [r[:3] for r in rest.history] == [r[:3] for r in whole.history]


def test_what_holds_no_checkpoint_is_not_resumed(data, tmp_path):
    for place, received in ((tmp_path, "where there is none"), (tmp_path / "nowhere", "which is no folder"), (__file__, "which is no folder")):
        with pytest.raises(hl.UserError, match=re.escape(f"[fit] resume must be a folder of checkpoints, or one checkpoint. Received: {str(place)!r}, {received}. Try: the folder that")):
            hl.fit(model(), data, epochs=1, progress=False, resume=place)


def test_a_run_can_be_pickled(data):
    run = hl.fit(model(), data, epochs=2, batch_size=16, progress=False)
    again = pickle.loads(pickle.dumps(run))
    assert repr(again) == repr(run) and again.history == run.history and again.explain() == run.explain()
    assert same(again.params, run.params) and same(again.state.params, run.state.params)
    np.testing.assert_array_equal(again.predict(data[0]), run.predict(data[0]))
    assert again.evaluate(data) == run.evaluate(data)


def test_a_pickled_state_is_checked(data):
    files = hl.fit(model(), data, epochs=1, progress=False).state.__getstate__()
    for name, damage, message in [
        ("model.safetensors", lambda b: None, "model.safetensors must be there. Received: a checkpoint without it"),
        ("model.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1]), "model.safetensors must be what was written. Received: another checksum"),
        ("training.json", lambda b: b[:40], "training.json must be whole"),
    ]:
        damaged = {n: damage(b) if n == name else b for n, b in files.items()}
        state = hl._core.TrainingState.__new__(hl._core.TrainingState)
        with pytest.raises(hl.UserError, match=re.escape(f"[checkpoint] {message}")):
            state.__setstate__({n: b for n, b in damaged.items() if b is not None})


def test_a_folder_holds_one_run(data, tmp_path):
    hl.fit(model(), data, epochs=2, checkpoints=tmp_path, progress=False)
    with pytest.raises(hl.UserError, match=r"must hold no checkpoints, or those of two runs mix. Received: .*step-.*Try: resume from that folder"):
        hl.fit(model(), data, epochs=1, seed=3, checkpoints=tmp_path, progress=False)
    assert len(hl.fit(model(), data, epochs=3, checkpoints=tmp_path, resume=tmp_path, progress=False).history) == 3


def test_a_state_is_kept_from_those_of_other_runs(data, tmp_path):
    x, y = data
    options = {"epochs": 2, "progress": False}
    one, other = (hl.fit(model(), (x, sign * y), **options) for sign in (1, -1))
    path = one.state.save(str(tmp_path))
    assert other.state.num_steps == one.state.num_steps
    with pytest.raises(hl.UserError, match=r"\[checkpoint\] the folder must hold checkpoints of one run alone. Received: .*step-.*, which is of another. Try: another folder"):
        other.state.save(str(tmp_path))
    with pytest.raises(hl.UserError, match="must hold checkpoints of one run alone"):
        hl.fit(model(), (x, -y), resume=other, checkpoints=tmp_path, **options)
    assert same(hl.load(path + "/model.safetensors", like=one.state.params), one.state.params)
    # The same state is there already, be it by another program; what was pickled is of its run.
    written = (tmp_path / path / "training.json").stat().st_mtime_ns
    assert pickle.loads(pickle.dumps(one)).state.save(str(tmp_path)) == path
    assert (tmp_path / path / "training.json").stat().st_mtime_ns == written
    assert same(hl.fit(model(), data, resume=one, checkpoints=tmp_path, **options).params, one.params)


def test_another_state_of_a_step_of_the_same_run_takes_its_place(data, tmp_path):
    x, y = data
    begun = hl.fit(model(), data, epochs=1, progress=False)
    ways = [hl.fit(model(), (x, sign * y), epochs=2, resume=begun, progress=False) for sign in (1, -1)]
    for run in ways:
        path = run.state.save(str(tmp_path))
        assert same(hl.load(path + "/model.safetensors", like=run.state.params), run.state.params)
    assert [p.name for p in tmp_path.iterdir()] == [path.rpartition("/")[2]]
    assert same(hl.fit(model(), (x, -y), epochs=2, resume=tmp_path, progress=False).state.params, ways[1].state.params)


def without_run(folder):
    """The checkpoint as versions before runs had a number wrote it."""
    path = folder / "training.json"
    state = json.loads(path.read_text())
    del state["run"], state["checksum"]
    state["checksum"] = crc32c(json.dumps(state, indent=2, ensure_ascii=False).encode())
    path.write_text(json.dumps(state, indent=2, ensure_ascii=False) + "\n")


def test_checkpoints_without_the_number_of_a_run_go_on(data, tmp_path):
    options = {"checkpoints": tmp_path, "progress": False}
    hl.fit(model(), data, epochs=2, **options)
    newest = max(tmp_path.iterdir())
    without_run(newest)
    before = (newest / "training.json").read_bytes()
    hl.fit(model(), data, epochs=2, resume=tmp_path, **options)  # nothing is left to do: the state is written as it was
    assert (newest / "training.json").read_bytes() == before
    whole = hl.fit(model(), data, epochs=3, progress=False)
    assert same(hl.fit(model(), data, epochs=3, resume=tmp_path, **options).params, whole.params)
    with pytest.raises(hl.UserError, match="must hold checkpoints of one run alone"):
        hl.fit(model(), data, epochs=3, resume=whole, **options)


def test_an_exception_in_a_callback_leaves_a_resumable_checkpoint(data, tmp_path):
    options = {"optimizer": hl.optim.Adam(1e-2), "batch_size": 16, "progress": False}

    def broken(at):
        if at.epoch == 2 and at.step == 3:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        hl.fit(model(), data, epochs=3, checkpoints=hl.Checkpoints(tmp_path, every_steps=1), callbacks=[broken], **options)
    rest = hl.fit(model(), data, epochs=3, resume=tmp_path, **options)
    assert same(rest.params, hl.fit(model(), data, epochs=3, **options).params)


@pytest.mark.parametrize("at_end", [False, True])
def test_an_exception_between_checkpoints_leaves_the_last_step(data, tmp_path, at_end):
    options = {"optimizer": hl.optim.Adam(1e-2), "batch_size": 16, "progress": False}

    def broken(at):
        if at.epoch == 2 and at.epoch_done == at_end and at.step == (6 if at_end else 3):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        hl.fit(model(), data, epochs=3, checkpoints=hl.Checkpoints(tmp_path, every_epochs=0), callbacks=[broken], **options)
    seen = []
    rest = hl.fit(model(), data, epochs=3, resume=tmp_path, callbacks=[lambda at: seen.append((at.epoch, at.step))], **options)
    assert seen[0] == ((3, 1) if at_end else (2, 4))
    assert same(rest.params, hl.fit(model(), data, epochs=3, **options).params)


def test_ctrl_c_ends_a_step_and_leaves_what_was_before_it(tmp_path, interrupt_after):
    """Nine hundred steps in one call, of which an interrupt ends some one; those of the calls before it are on the disk."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 40, 2)).astype(np.float32)
    data, options = (x, x[:, :, :1].sum(1)), {"batch_size": 2, "steps_per_call": 900, "validation": (x[:2], x[:2, 0, :1]), "progress": False}
    sent, seconds, done = [], [], []

    def watch(at):
        done.append(at.step)
        if len(done) == 1:
            seconds.append(at.elapsed_s)
            interrupt_after(seconds[0] / 2, sent)

    # A callback that itself runs programs, as one that evaluates does.
    evaluate = lambda at: float(hl.jit(lambda v: v + 1)(1.0)) != 2  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        hl.fit(model(), data, epochs=50, checkpoints=tmp_path, callbacks=[watch, evaluate], **options)
    assert time.perf_counter() - sent[0] < max(2, seconds[0] / 4)  # some milliseconds on a free machine
    seen = []
    hl.fit(model(), data, epochs=1, resume=tmp_path, callbacks=[lambda at: seen.append((at.epoch, at.step))], **options)
    # In the second call, or where the machine is busy a later one: then steps go one by one, since too few are left of the epoch.
    assert seen[0] == (1, done[-1] + (900 if done[-1] + 900 <= 2000 else 1))


def test_an_interrupt_whose_handler_goes_on_changes_nothing(data, interrupt):
    run = lambda: hl.fit(model(), data, epochs=40, progress=False)  # noqa: E731
    wanted, heard = run(), []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        sender = threading.Thread(target=lambda: [interrupt(0.01, []) for _ in range(20)])
        sender.start()
        got = run()
        sender.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard and same(got.params, wanted.params) and same(got.state.params, wanted.state.params)
