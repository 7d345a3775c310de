"""Streams and exports of models of several inputs: each step is that of the whole sequence, to the bit."""

import ctypes
import re
import shutil
import subprocess
from typing import NamedTuple

import hotloop as hl
import numpy as np
import pytest

FLAGS = ["-std=c11", "-O2", "-ffp-contract=off", "-fno-math-errno", "-march=native", "-shared", "-fPIC"]
STEPS = 6


class Inputs(NamedTuple):
    series: object
    store: object
    facts: object


class Sales(hl.nn.Module):
    """A number for each step of the series, by what does not change with it too."""

    def __init__(self):
        self.lstm, self.store, self.head = hl.nn.LSTM(2, 8), hl.nn.Embedding(5, 4), hl.nn.Linear(8 + 4 + 3, 1)

    def apply(self, params, x, key=None):
        series, store, facts = x.values() if isinstance(x, dict) else x
        h = self.lstm(params["lstm"], self.seen(series))
        rest = hl.concat([self.store(params["store"], store), facts], axis=-1)
        rest = hl.broadcast_to(rest[:, None], (*h.shape[:2], rest.shape[-1]))
        return self.head(params["head"], hl.concat([h, rest], axis=-1))

    def seen(self, series):
        return series


class Centred(Sales):
    def seen(self, series):
        return series - hl.mean(series, axis=1, keepdims=True)


MODEL = Sales()
PARAMS = MODEL.init(3)


def sequence(rng, batch):
    series, facts = (rng.normal(size=shape).astype("float32") for shape in ((batch, STEPS, 2), (batch, 3)))
    return {"series": series, "store": rng.integers(0, 5, batch).astype("int32"), "facts": facts}


def at(x, t):
    return {**x, "series": x["series"][:, t : t + 1]}


@pytest.mark.parametrize("make", [dict, lambda x: Inputs(**x), lambda x: tuple(x.values())], ids=["dict", "named tuple", "tuple"])
def test_steps_are_those_of_the_sequence(rng, make):
    x = sequence(rng, 2)
    whole, bound, state = np.asarray(MODEL(PARAMS, make(x))), MODEL.bind(PARAMS), None
    voice = bound.voice(2)
    for t in range(STEPS):
        y, state = bound.step(state, make(at(x, t)))
        assert np.asarray(y).tobytes() == np.ascontiguousarray(whole[:, t]).tobytes()
        assert np.array_equal(voice.step(make(at(x, t))), y)
    assert np.asarray(bound(make(x))).tobytes() == whole.tobytes()


def test_as_the_first_of_a_sequence(rng):
    model = hl.nn.Sequential(MODEL, hl.nn.GRU(1, 3), hl.nn.Linear(3, 2))
    params, x = model.init(1), sequence(rng, 3)
    whole, bound, state = np.asarray(model(params, x)), model.bind(params), None
    for t in range(STEPS):
        y, state = bound.step(state, at(x, t))
        assert np.asarray(y).tobytes() == np.ascontiguousarray(whole[:, t]).tobytes()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("what", ["source", "object"])
def test_exported_inputs_are_fields(what, rng, tmp_path):
    x = sequence(rng, 1)
    wide = {**at(x, 0), "series": np.zeros((1, 1, 2))}  # an example's floats count as the parameters'
    exported = hl.export_c(MODEL, PARAMS, wide, name="sales")
    fields = ["const float* series;  // f32[1,1,2]", "const int32_t* store;  // i32[1]", "const float* facts;  // f32[1,3]"]
    assert "typedef struct sales_inputs {\n  " + "\n  ".join(fields) + "\n} sales_inputs;" in exported.header
    source, library = exported.write(tmp_path), tmp_path / "sales.so"
    subprocess.run(["cc", *FLAGS, str(source if what == "source" else source.with_suffix(".o")), "-o", str(library), "-lm"], check=True)
    sales = ctypes.CDLL(str(library))
    voice = np.zeros(exported.voice_bytes + 64, np.uint8)
    voice = voice[-voice.ctypes.data % 64 :]
    sales.sales_init(ctypes.c_void_p(voice.ctypes.data), None)
    stream, y = MODEL.bind(PARAMS).voice(), np.empty((1, 1), "float32")
    for t in range(STEPS):
        arrays = [np.ascontiguousarray(a) for a in at(x, t).values()]
        inputs = (ctypes.c_void_p * 3)(*(a.ctypes.data for a in arrays))
        sales.sales_step(ctypes.c_void_p(voice.ctypes.data), inputs, ctypes.c_void_p(y.ctypes.data))
        assert y.tobytes() == np.asarray(stream.step(at(x, t))).tobytes()


def test_ids_alone(rng):
    model = hl.nn.Sequential(hl.nn.Embedding(7, 4), hl.nn.GRU(4, 5), hl.nn.Linear(5, 7))
    params = model.init(0)
    header = hl.export_c(model, params, np.zeros(1, "int32"), name="letters").header
    assert "void letters_step(letters_voice* voice, const int32_t* x, float* y);" in header
    assert hl.export_c(hl.nn.GRU(3, 4), hl.nn.GRU(3, 4).init(), np.int64(3)).header == hl.export_c(hl.nn.GRU(3, 4), hl.nn.GRU(3, 4).init(), 3).header


class Horizon(hl.nn.Module):
    """(batch, horizon, targets) of the last step."""

    def __init__(self, horizon, targets, many=False):
        self.rnn, self.head, self.shape, self.many = hl.nn.GRU(2, 4), hl.nn.Linear(4, horizon * targets), (horizon, targets), many

    def apply(self, params, x, key=None):
        y = self.head(params["head"], self.rnn(params["rnn"], x["series"] if isinstance(x, dict) else x))
        return y[:, :, 0] if self.many else hl.reshape(y[:, -1], (y.shape[0], *self.shape))


# An axis of one step and one of one number look alike; in C++ and in C it is told apart, too.
@pytest.mark.parametrize("model, shape", [(Horizon(1, 6), (3, 1, 6)), (Horizon(2, 1), (3, 2, 1)), (Horizon(1, 1), (3, 1, 1)), (Horizon(1, 1, many=True), (3,))])
def test_the_axis_of_time_alone_goes(model, shape, rng):
    params = model.init(0)
    bound, x = model.bind(params), rng.normal(size=(3, 4, 2)).astype("float32")
    state, whole = None, np.asarray(model(params, x))
    for t in range(4):
        y, state = bound.step(state, x[:, t])
    assert y.shape == shape
    assert np.asarray(y).tobytes() == np.ascontiguousarray(whole[:, -1] if model.many else whole).tobytes()
    y, _ = bound.step(None, {"series": x[:, :1]})
    assert y.shape == shape
    header = hl.export_c(model, params, 2, batch=3).header
    assert f"y: f32[{','.join(map(str, shape))}]" in header


class Letters(hl.nn.Module):
    def __init__(self):
        self.rows, self.lstm = hl.nn.Embedding(7, 4), hl.nn.LSTM(4, 5)

    def apply(self, params, x, key=None):
        return self.lstm(params["lstm"], self.rows(params["rows"], x))


@pytest.mark.parametrize("model", [Letters(), hl.nn.Sequential(hl.nn.Embedding(7, 4), hl.nn.GRU(4, 5))], ids=["module", "sequential"])
def test_ids_of_a_step_have_the_batch_alone(model):
    bound = model.bind(model.init(0))
    told = r"^\[step\] ids of a step must be \(batch,\), one id a sequence.*Received: {}. Try: {}"
    for _ in range(2):  # before the first step, and after it
        for shape, remedy in (((1, 1), r"ids\[:, 0\]\.$"), ((2, 1), r"ids\[:, 0\]\.$"), ((2, 1, 1), r"ids\[:, 0, 0\]\.$")):
            with pytest.raises(hl.UserError, match=told.format(re.escape(f"int32 {shape}"), remedy)):
                bound.step(None, np.zeros(shape, np.int32))
        for scalar in (3, np.int32(3), np.zeros((), np.int32), hl.asarray(3)):
            with pytest.raises(hl.UserError, match=told.format("a scalar", r"numpy.array\(\[id\]\) for one sequence")):
                bound.step(None, scalar)
        y, state = bound.step(None, np.array([1, 2], np.int32))
        assert y.shape == (2, 5)
        with pytest.raises(hl.UserError, match=told.format(re.escape("int32 (2, 1)"), r"ids\[:, 0\]")):
            bound.step(state, np.zeros((2, 1), np.int32))
    # Whole numbers in place of floats are something else.
    floats = hl.nn.GRU(1, 2).bind(hl.nn.GRU(1, 2).init(0))
    with pytest.raises(hl.UserError) as said:
        floats.step(None, np.zeros((2, 1), np.int32))
    assert "ids" not in str(said.value)


def test_a_module_that_mixes_steps_is_refused(rng):
    x = at(sequence(rng, 1), 0)
    for call in (lambda: Centred().bind(PARAMS).step(None, x), lambda: hl.export_c(Centred(), PARAMS, x)):
        with pytest.raises(hl.UserError, match=r"\[stream\] apply\(\) of a module of one's own must treat each step alone.*Centred.apply, which gives other numbers"):
            call()


@pytest.mark.parametrize("change, message", [
    (lambda x: {**x, "series": np.zeros((2, 4, 2), "float32")}, "[stream] inputs of a step must be a sequence of one step, [batch, 1, ...] of what has steps. Received: series f32[2,4,2], store i32[2], facts f32[2,3]."),
    (lambda x: {**x, "facts": 1.0}, "[stream] each input of a step must have the batch, 2, as its first axis. Received: facts = f32[]."),
    (lambda x: {**x, "facts": np.zeros((3, 3), "float32")}, "[stream] each input of a step must have the batch, 2, as its first axis. Received: facts = f32[3,3]."),
    (lambda x: {}, "[stream] there must be an input. Received: a tree without leaves."),
])  # fmt: skip
def test_errors(rng, change, message):
    x = change(at(sequence(rng, 2), 0))
    with pytest.raises(hl.UserError, match=re.escape(message)):
        MODEL.bind(PARAMS).step(None, x)


def test_several_steps_after_one_are_refused(rng):
    x, bound = sequence(rng, 2), MODEL.bind(PARAMS)
    _, state = bound.step(None, at(x, 0))
    message = "[step] inputs of a step must be a sequence of one step, (batch, 1, ...) of what has steps. Received: x['series'] = float32 (2, 6, 2), "
    with pytest.raises(hl.UserError, match=re.escape(message)):
        bound.step(state, x)
