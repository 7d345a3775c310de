"""hl.export_c: the C of a model, compiled by the system's compiler, and its object give the bits of the stream."""

import ctypes
import shutil
import subprocess

import hotloop as hl
import numpy as np
import pytest

FLAGS = ["-std=c11", "-O2", "-ffp-contract=off", "-fno-math-errno", "-march=native", "-shared", "-fPIC"]


def compiled(exported, folder, what):
    source = exported.write(folder)
    library = folder / f"model_{what}.so"
    subprocess.run(["cc", *FLAGS, str(source if what == "source" else source.with_suffix(".o")), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", ["source", "object"])
def test_compiled_c_gives_the_streams_bits(dtype, what, rng, tmp_path):
    model = hl.nn.Sequential(hl.nn.LSTM(3, 20), hl.nn.GRU(20, 7), hl.nn.Linear(7, 2))
    params = model.init(5, dtype=dtype)
    exported = hl.export_c(model, params, 3, name="tiny", batch=2)
    assert len(exported.targets) == 1
    library = compiled(exported, tmp_path, what)
    voice = np.zeros(exported.voice_bytes + 64, np.uint8)
    start = -voice.ctypes.data % 64
    voice = voice[start:]
    library.tiny_init(pointer(voice), None)
    bound, state = model.bind(params), None
    for x in rng.normal(size=(5, 2, 3)).astype(dtype):
        y = np.empty((2, 2), dtype)
        library.tiny_step(pointer(voice), pointer(x), pointer(y))
        wanted, state = bound.step(state, x)
        assert y.tobytes() == np.asarray(wanted).tobytes()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("what", ["source", "object"])
@pytest.mark.parametrize("layer", [hl.nn.Linear, hl.nn.LSTM])
def test_a_step_may_write_over_its_input(layer, what, tmp_path):
    width, shift = 256, 3  # several tiles of columns; and y may begin anywhere in x
    model = layer(width, width)
    exported = hl.export_c(model, model.init(5), width, name="tiny")
    library = compiled(exported, tmp_path, what)
    outputs = []
    for offset in (width + shift, 0, shift, -shift):
        voice = np.zeros(exported.voice_bytes + 64, np.uint8)
        voice = voice[-voice.ctypes.data % 64 :]
        library.tiny_init(pointer(voice), None)
        outputs.append([])
        for x in np.random.default_rng(3).normal(size=(4, width)).astype(np.float32):
            memory = np.zeros(4 * width, np.float32)
            memory[width : 2 * width] = x
            y = memory[width + offset :][:width]
            library.tiny_step(pointer(voice), pointer(memory[width:]), pointer(y))
            outputs[-1].append(y.tobytes())
    assert outputs[1:] == outputs[:1] * 3


def test_files_are_replaced_together_or_not_at_all(tmp_path):
    model = hl.nn.GRU(2, 5)
    first = hl.export_c(model, model.init(0), 2, name="amp").write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["amp.c", "amp.h", "amp.o"]
    first.unlink()
    first.mkdir()  # where a file cannot be written
    wider = hl.export_c(hl.nn.GRU(2, 9), hl.nn.GRU(2, 9).init(0), 2, name="amp")
    with pytest.raises(hl.UserError, match=r"^\[export\] what is replaced must be a regular file\."):
        wider.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(before)
    for name in ("amp.h", "amp.o"):
        assert (tmp_path / name).read_bytes() == before[name]
    first.rmdir()
    wider._replace(object=b"").write(tmp_path)
    assert (tmp_path / "amp.h").read_text() == wider.header
    assert sorted(path.name for path in tmp_path.iterdir()) == ["amp.c", "amp.h"]  # an object of other weights would not say so


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("what", ["amp.c", "amp.o"])
def test_a_header_of_another_layout_does_not_link(what, tmp_path):
    one, other = (hl.export_c(hl.nn.GRU(2, units), hl.nn.GRU(2, units).init(0), 2, name="amp") for units in (5, 9))
    one.write(tmp_path / "one")
    other.write(tmp_path / "other")
    main = tmp_path / "main.c"
    main.write_text('#include "amp.h"\nstatic amp_voice v;\nint main(void) { float x[2] = {0}, y[9]; amp_init(&v, 0); amp_step(&v, x, y); return 0; }\n')
    for header, links in (("one", True), ("other", False)):
        built = subprocess.run(["cc", "-I", tmp_path / header, "-o", tmp_path / "main", main, tmp_path / "one" / what, "-lm"], capture_output=True, text=True, check=False)
        assert (built.returncode == 0) == links, built.stderr
        assert links or "amp_init_" in built.stderr


def test_a_cell_of_ones_own_is_exported_too():
    class Decay(hl.nn.Cell):
        def init(self, seed):
            return {"w": hl.nn.uniform(seed, (4, 3))}

        def initial_state(self, batch):
            return hl.zeros((batch, 4))

        def __call__(self, params, state, x):
            h = 0.5 * state + hl.tanh(x @ params["w"].T)
            return h, h

    model = hl.nn.Recurrent(Decay())
    exported = hl.export_c(model, model.init(0), 3, name="decay")
    assert "void decay_step(decay_voice* voice, const float* x, float* y);" in exported.header
    assert exported.weight_bytes >= 4 * 3 * 4 and exported.state_bytes == 16
    assert len(repr(exported)) < 300


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_source_leaves_nothing_undefined(tmp_path):
    model = hl.nn.Sequential(hl.nn.GRU(2, 5), hl.nn.Conv1d(5, 3, 2, dilation=2), hl.nn.Tanh(), hl.nn.Linear(3, 1))
    path = hl.export_c(model, model.init(0), 2, name="amp").write(tmp_path)
    calls = "float x[2] = {0.5f, -90}, y[1]; amp_init(&v, 0); for (int t = 0; t < 9; ++t) amp_step(&v, x, y);"
    (tmp_path / "main.c").write_text(f'#include "amp.h"\nstatic amp_voice v;\nint main(void) {{ {calls} return y[0] != y[0]; }}\n')
    sanitize = ["-fsanitize=undefined", "-fno-sanitize-recover=all", "-ffp-contract=off"]
    built = subprocess.run(["cc", "-O1", *sanitize, "-o", tmp_path / "main", tmp_path / "main.c", path, "-lm"], capture_output=True, text=True, check=False)
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no sanitizer")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


class Wrapping(hl.nn.Cell):
    """Counts past the greatest number of each integer type, and divides, negates and shifts the least one."""

    def init(self, seed):
        return {"w": np.ones((1, 2), np.float32)}

    def initial_state(self, batch):
        far = {"i": 2**31 - 3, "l": 2**63 - 3, "u": 2**32 - 3}
        types = {"i": hl.int32, "l": hl.int64, "u": hl.uint32}
        return {name: hl.full((batch, 3), far[name], dtype=types[name]) for name in far}

    def __call__(self, params, state, x):
        y, new = x @ params["w"].T, {}
        for name, s in state.items():
            n = s + 1
            new[name] = n
            signed = [] if name == "u" else [-n > 0, hl.abs(n) < 0, n // -1 < 0, hl.remainder(n, -1) == 0]
            sums = [hl.sum(n, axis=-1, keepdims=True) + n > 0, hl.prod(n, axis=-1, keepdims=True) * n > 0, hl.cumulative_sum(n, axis=-1) > n]
            tests = [n > s, n * 3 > n, n - hl.flip(s, -1) * 2 < 0, (n * 2) // 2 == n, hl.bitwise_left_shift(n, 3) > 0, *sums, *signed]
            y = y + sum(2.0**i * hl.astype(test, hl.float32) for i, test in enumerate(tests))
        return new, y


class Unusual(hl.nn.Cell):
    """Numbers that C has no decimal literal for, in weights, constants and states."""

    numbers = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-45, -1e-40, 3.4028235e38, 0.1], np.float32)

    def init(self, seed):
        return {"w": self.numbers}

    def initial_state(self, batch):
        ints = {"i": (-(2**31), hl.int32), "l": (-(2**63), hl.int64), "u": (2**32 - 1, hl.uint32)}
        return {"f": hl.asarray(np.tile(self.numbers[::-1], (batch, 1)))} | {name: hl.full((batch, 1), n, dtype=dtype) for name, (n, dtype) in ints.items()}

    def __call__(self, params, state, x):
        lowest = hl.asarray(np.array([-(2**31), 2**31 - 1, -(2**31)] * 3, np.int32))
        y = hl.concat([1 / params["w"] + x[:, :1], params["w"] + state["f"] * hl.asarray(self.numbers), hl.astype(lowest ^ state["i"], hl.float32)], axis=-1)
        whole = [hl.astype(state["l"] // 3, hl.float32), hl.astype(state["u"], hl.float32), hl.astype(hl.isnan(state["f"]), hl.float32), hl.astype(hl.isnan(state["i"]), hl.float32)]
        return state | {"f": hl.flip(state["f"], -1)}, hl.concat([y, *whole], axis=-1)


class Sorter(hl.nn.Cell):
    """Sorted whole numbers between products: memory that holds floats holds integers after them."""

    def init(self, seed):
        return {"w": hl.nn.uniform(seed, (20, 2)), "v": hl.nn.uniform(seed, (20, 20))}

    def initial_state(self, batch):
        return hl.zeros((batch, 20), dtype=hl.int32)

    def __call__(self, params, state, x):
        first = hl.sort(hl.astype(100 * hl.tanh(x @ params["w"].T), hl.int32) + state, axis=-1)
        h = hl.tanh(hl.astype(first, hl.float32) @ params["v"].T)
        second = hl.sort(hl.astype(50 * h, hl.int32) + first, axis=-1)
        return second, hl.tanh(0.01 * hl.astype(second, hl.float32) @ params["v"].T) + h


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("cell", [Wrapping, Unusual, Sorter])
def test_source_is_strict_c_that_gives_the_streams_bits(cell, compiler, rng, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    model = hl.nn.Recurrent(cell())
    params, xs = model.init(0), rng.normal(size=(7, 1, 2)).astype(np.float32)
    exported = hl.export_c(model, params, 2, name="net")
    source, bound, state, wanted = exported.write(tmp_path), model.bind(params), None, []
    for x in xs:
        y, state = bound.step(state, x)
        wanted.append(np.asarray(y))
    wanted = np.stack(wanted)
    numbers = ", ".join(f"{float(v).hex()}f" for v in xs.ravel())
    calls = f"const float x[] = {{{numbers}}}; float y[net_OUTPUTS]; net_init(&v, 0);"
    calls += " for (int t = 0; t < 7; ++t) { net_step(&v, x + 2 * t, y); fwrite(y, 4, net_OUTPUTS, stdout); }"
    (tmp_path / "main.c").write_text(f'#include <stdio.h>\n#include "net.h"\nstatic net_voice v;\nint main(void) {{ {calls} return 0; }}\n')
    strict = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno", f"-march={exported.targets[0]}"]
    for flags in (["-O3"], ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]):
        built = subprocess.run([*strict, *flags, "-o", tmp_path / "main", tmp_path / "main.c", source, "-lm"], capture_output=True, text=True, check=False)
        if "cannot find" in built.stderr and "sanitize" in built.stderr:
            continue
        assert built.returncode == 0, built.stderr
        ran = subprocess.run([tmp_path / "main"], capture_output=True, check=False)
        assert ran.returncode == 0, ran.stderr
        got = np.frombuffer(ran.stdout, np.float32).reshape(wanted.shape)
        nan = np.isnan(wanted)
        assert np.array_equal(np.isnan(got), nan)
        assert np.array_equal(got.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


class Named(hl.nn.Cell):
    """A cell whose parameters have the names of a tree."""

    def __init__(self, tree):
        self.tree = tree

    def init(self, seed):
        return hl.tree.map(lambda _: hl.nn.uniform(seed, (3, 3)), self.tree)

    def initial_state(self, batch):
        return hl.zeros((batch, 3))

    def __call__(self, params, state, x):
        h = x
        for weight in hl.tree.leaves(params):
            h = hl.tanh(state + h @ weight)
        return h, h


@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("c++") is None, reason="needs compilers of C and C++")
@pytest.mark.parametrize(
    ("tree", "fields"),
    [
        ({"short": 0, "class": 1, "default": 2, "and": 3, "int32_t": 4, "while": 5}, {"short_": "short", "class_": "class", "and_": "and", "int32_t_": "int32_t"}),
        ({"NULL": 0, "EOF": 1, "M_PI": 2, "I": 3, "W": 4, "W1": 5, "Wx": 6}, {"NULL_": "NULL", "EOF_": "EOF", "M_PI_": "M_PI", "I_": "I", "W": "W", "W1_": "W1", "Wx": "Wx"}),
        ({"gate": {"in": 0}, "gate_in": 1, "gate in": 2, "gate_in_2": 3}, {"gate_in": "gate.in", "gate_in_2": "gate_in", "gate_in_3": "gate in", "gate_in_2_2": "gate_in_2"}),
        ({"α": 0, "β": 1, "größe": 2, "grüße": 3, "_Bool": 4, "__volatile__": 5, "2x": 6}, {"p_": "α", "p_2": "β", "gr__e": "größe", "gr__e_2": "grüße", "p_Bool": "_Bool", "p2x": "2x"}),
        ({"default": 0, "default_": 1, "$N": 2, "a\nb": 3}, {"default_": "default", "default_2": "default_", "p_N": "?N", "a_b": "a?b"}),
    ],
)
def test_fields_are_identifiers_of_their_own(tree, fields, tmp_path):
    model = hl.nn.Recurrent(Named(tree))
    exported = hl.export_c(model, model.init(0), 3, name="net")
    for field, leaf in fields.items():
        assert f"  const float* {field};  // {'' if field == leaf else leaf + ', '}f32[3,3]\n" in exported.header
    compiles(exported, tmp_path)


@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("c++") is None, reason="needs compilers of C and C++")
def test_inputs_may_have_any_names(rng, tmp_path):
    class Mixer(hl.nn.Module):
        def __init__(self):
            self.lstm = hl.nn.LSTM(4, 4)

        def apply(self, params, x, key=None):
            return self.lstm(params["lstm"], hl.concat([x["short"], x["class"], x["é"], x["è"]], axis=-1))

    model = Mixer()
    params = model.init(0)
    inputs = {name: rng.normal(size=(1, 1, 1)).astype(np.float32) for name in ("short", "class", "é", "è")}
    exported = hl.export_c(model, params, inputs, name="net")
    compiles(exported, tmp_path)
    library = compiled(exported, tmp_path, "source")
    voice = np.zeros(exported.voice_bytes + 64, np.uint8)
    voice = voice[-voice.ctypes.data % 64 :]
    assert library.net_init(pointer(voice), None) == 0
    y = np.zeros(4, np.float32)
    library.net_step(pointer(voice), (ctypes.c_void_p * 4)(*(leaf.ctypes.data for leaf in hl.tree.leaves(inputs))), pointer(y))
    assert np.array_equal(y, np.asarray(model.bind(params).step(None, inputs)[0]).ravel())


def compiles(exported, folder):
    """The header in C and in C++, and the source."""
    source = exported.write(folder)
    for language, standard in (("c", "-std=gnu11"), ("c++", "-std=gnu++20")):
        main = folder / f"main.{language[:2]}"
        main.write_text(f'#include <complex.h>\n#include <math.h>\n#include <stdio.h>\n#include "{exported.name}.h"\nint main(void) {{ return 0; }}\n')
        checked = subprocess.run(["cc", "-x", language, standard, "-fsyntax-only", str(main)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
    checked = subprocess.run(["cc", "-std=c11", "-fsyntax-only", str(source)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_errors():
    model = hl.nn.Sequential(hl.nn.LSTM(3, 4))
    with pytest.raises(hl.UserError, match=r"\[export\] the name must be a C identifier. Received: '2x'"):
        hl.export_c(model, model.init(0), 3, name="2x")
    with pytest.raises(hl.UserError, match="target"):
        hl.export_c(model, model.init(0), 3, target="avx1024")
    with pytest.raises(hl.UserError, match="must be a layer of hl.nn"):
        hl.export_c(lambda x: x, {}, 3)


def test_running_means_are_not_fresh_ones_without_a_word():
    model = hl.nn.Sequential(hl.nn.LSTM(3, 4), hl.nn.BatchNorm(4))
    missing = r"buffers must be the model's own, 1.running_mean = f32\[4\]. Received: no 1.running_mean. Try: buffers = run.buffers"
    with pytest.raises(hl.UserError, match=missing):
        hl.export_c(model, model.init(0), 3)
    with pytest.raises(hl.UserError, match=missing):
        model.bind(model.init(0)).step(None, np.zeros((1, 3), np.float32))
    with pytest.raises(hl.UserError, match="Try: buffers = run.buffers"):
        model(model.init(0), np.zeros((1, 2, 3), np.float32))
    other = hl.tree.map(lambda a: np.asarray(a) + np.asarray(1, a.dtype), model.init_buffers())
    fresh, moved = (hl.export_c(model, model.init(0), 3, buffers=b).source for b in (model.init_buffers(), other))
    assert fresh != moved
