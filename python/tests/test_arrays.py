"""Arrays in and out: what is shared, what is copied, what is refused."""

import array
import ctypes
import pickle

import hotloop as hl
import numpy as np
import pytest

identity = hl.jit(lambda x: x + 0)


def address(x):
    return np.asarray(x).__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint32", "int64", "float32", "float64"])
def test_supported_dtypes_share_memory(dtype):
    x = np.array([0, 1, 1]).astype(dtype)
    a = hl.asarray(x)
    assert a.dtype == x.dtype and a._address == address(x)
    assert np.array_equal(hl.jit(lambda v: v)(x), x)


@pytest.mark.parametrize("given, becomes", [
    ("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("uint16", "int32"), ("float16", "float32"), ("uint64", "int64"),
    (">f4", "float32"), (">i8", "int64"),
])  # fmt: skip
def test_other_dtypes_are_converted(given, becomes):
    x = np.array([0, 1, 100]).astype(given)
    assert hl.asarray(x).dtype == np.dtype(becomes) and np.array_equal(hl.asarray(x), x)
    assert np.array_equal(identity(x), x)


@pytest.mark.parametrize("view", [
    lambda x: x[::2], lambda x: x.T, lambda x: x[:, ::-1], lambda x: np.asfortranarray(x), lambda x: x[:0], lambda x: x[1, 1],
    lambda x: np.broadcast_to(x[0], (3, 4)), lambda x: x[:, None],
])  # fmt: skip
def test_layouts(view):
    x = view(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    assert np.array_equal(identity(x), x) and identity(x).shape == np.shape(x)


def test_read_only_and_misaligned():
    x = np.arange(4.0)
    x.flags.writeable = False
    assert hl.asarray(x)._address == address(x)
    raw = np.zeros(33, np.uint8)[1:].view(np.float64)
    raw[:] = [1, 2, 3, 4]
    assert not raw.flags.aligned and np.array_equal(identity(raw), raw)


@pytest.mark.parametrize("value, message", [
    (np.array([1, "a"], dtype=object), "a NumPy array of dtype object. Try: numpy.asarray(x, dtype=numpy.float32), which fails at what is no number"),
    (np.array([1j]), "a NumPy array of dtype complex128. Try: the real and imaginary parts as two arrays"),
    (np.array(["a"]), "a NumPy array of dtype <U1. Try: numbers; of labels those that numpy.unique(x, return_inverse=True)[1] gives them"),
    (np.array(["2026-01-01"], dtype="M8[D]"), "Try: x.astype('int64'), or seconds as float64"),
    (np.zeros(1, np.longdouble), "Try: x.astype(numpy.float64)"),
    (np.array([2**63], np.uint64), "u64 values must fit i64. Received: a largest value of 9223372036854775808"),
    (np.zeros((1,) * 13), "an array has at most 12 axes. Received: 13 axes. Try: reshape to fewer axes"),
    ([[1, 2], [3]], "NumPy must be able to make an array of it"),
    (object(), "an array must be an Array, a NumPy array, a number, a list of numbers or have __dlpack__. Received: an object"),
])  # fmt: skip
def test_refused(value, message):
    with pytest.raises(hl.UserError) as error:
        hl.asarray(value)
    assert message in str(error.value)


MASKED = np.ma.masked_array(np.float32([1, 2, 1e6]), mask=[False, False, True])


@pytest.mark.parametrize("use", [
    hl.asarray, hl.sum, hl.jit(lambda x: x + 1), lambda x: hl.jit(lambda y: y * x)(np.float32(2)),
    lambda x: hl.asarray([x, x]), lambda x: hl.asarray([[1, 2], [3, x[2]]]), lambda x: hl.stack([hl.ones(3), x]), lambda x: hl.ones(3) + x,
    lambda x: hl.fit(hl.nn.Linear(1, 1), (np.ones((3, 1), np.float32), x[:, None]), epochs=1), lambda x: hl.jit(lambda y: y, donate=0)(x),
    lambda x: hl.nn.Linear(3, 1).bind({"weight": x[None], "bias": np.zeros(1)}), lambda x: hl.asarray(x.astype(int)), lambda x: hl.asarray(x[::-1]),
])  # fmt: skip
def test_masked_elements_are_no_numbers(use):
    with pytest.raises(hl.UserError, match=r"an array must have a number in each place. Received: a masked array, 1 of .*Try: x.filled\(0\)"):
        use(MASKED)


def test_masked_arrays_without_masked_elements():
    assert hl.asarray(MASKED[:2]).tolist() == [1, 2] and float(hl.sum(MASKED.filled(0))) == 3
    assert hl.asarray([MASKED[:2], MASKED[:2]]).shape == (2, 2)


def test_lists_and_numbers_have_the_default_dtypes():
    assert hl.asarray([1.5, 2]).dtype == hl.float32 and hl.asarray([1, 2]).dtype == hl.int32
    assert hl.asarray([2**40]).dtype == hl.int64 and hl.asarray([True]).dtype == hl.bool
    assert hl.asarray(1.0).dtype == hl.float32 and hl.asarray(2**40).dtype == hl.int64
    assert hl.asarray([0.1], dtype=hl.float64).tolist() == [0.1]
    assert hl.asarray(np.float64(1)).dtype == hl.float64  # a NumPy scalar is an array


def test_buffer_protocol_in():
    assert hl.asarray(array.array("d", [1, 2])).tolist() == [1, 2]
    assert hl.asarray(memoryview(np.arange(3, dtype=np.int32))).tolist() == [0, 1, 2]


def test_out():
    x = hl.asarray(np.arange(6, dtype=np.float32).reshape(2, 3)) * 1
    view = np.asarray(x)
    assert address(view) == x._address and not view.flags.writeable
    assert address(np.asarray(memoryview(x))) == x._address
    assert address(np.from_dlpack(x)) == x._address
    assert address(np.array(x)) != x._address
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(x, dtype=np.float64, copy=False)
    with pytest.raises((BufferError, TypeError)):
        (ctypes.c_char * 24).from_buffer(x)
    del x
    assert view.sum() == 15  # the view keeps the memory


def test_array_is_a_sequence_of_rows_and_a_value():
    x = hl.asarray([[1, 2], [3, 4]])
    assert len(x) == 2 and [r.tolist() for r in x] == [[1, 2], [3, 4]] and x.T.tolist() == [[1, 3], [2, 4]]
    assert float(hl.asarray(2.5)) == 2.5 and int(hl.asarray(3)) == 3 and bool(hl.asarray(True)) and range(hl.asarray(3))[-1] == 2
    assert f"{hl.asarray(2.5):.3f} {hl.asarray(7):03d} {hl.asarray(2.5)}" == "2.500 007 Array(2.5, dtype=float32)"
    assert repr(x) == "Array([[1, 2],\n       [3, 4]], dtype=int32)"
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    with pytest.raises(ValueError):
        bool(x)


def test_numpy_on_the_left():
    x = np.ones(3)
    assert isinstance(x * hl.asarray(x), hl.Array)
    assert isinstance(hl.jit(lambda v: x @ v)(x), hl.Array)


def test_without_a_copy_or_not_at_all():
    x, mine = np.arange(6, dtype=np.float32), hl.ones(3)
    for given in (x, memoryview(x), x.reshape(2, 3)):
        assert np.shares_memory(hl.asarray(given, copy=False), x)
    assert hl.asarray(mine, copy=False) is mine and hl.asarray(mine, hl.float32, copy=False) is mine
    assert np.shares_memory(hl.from_dlpack(x, copy=False), x)
    for given in ([1, 2], 1.0, np.float32(1), x[::2], x.astype(">f4"), x.astype(np.float16), [x]):
        with pytest.raises(ValueError, match=r"^\[asarray\] with copy=False an array must lie in memory as it is wanted"):
            hl.asarray(given, copy=False)
    with pytest.raises(ValueError, match=r"Received: an array of float32, for int32. Try: copy=None"):
        hl.asarray(x, dtype="int32", copy=False)
