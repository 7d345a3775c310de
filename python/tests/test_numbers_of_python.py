"""Numbers of Python beside arrays: their digits, and what does not fit an array's dtype."""

import hotloop as hl
import numpy as np
import pytest

BIG = 2**60 + 1  # which no float has
KEEP_DIGITS = {
    "full": (lambda x: hl.full((3,), BIG, "int64"), [BIG] * 3),
    "full_like": (lambda x: hl.full_like(x, BIG), [BIG] * 3),
    "two full": (lambda x: hl.concat([hl.full((1,), BIG, "int64"), hl.full((1,), BIG - 1, "int64")]), [BIG, BIG - 1]),
    "pad": (lambda x: hl.pad(x, 1, constant_values=BIG), [BIG, 0, 1, 2, BIG]),
    "pad twice": (lambda x: hl.pad(hl.pad(x, 1, constant_values=BIG), 1, constant_values=BIG - 1), [BIG - 1, BIG, 0, 1, 2, BIG, BIG - 1]),
    "where": (lambda x: hl.where(x > 0, x, BIG), [BIG, 1, 2]),
    "clip": (lambda x: hl.clip(x, BIG, BIG + 1), [BIG] * 3),
    "clip by name": (lambda x: hl.clip(x, min=BIG, max=BIG + 1), [BIG] * 3),
    "minimum": (lambda x: hl.minimum(x + BIG, BIG), [BIG] * 3),
    "at set": (lambda x: x.at[1].set(BIG), [0, BIG, 2]),
    "at set several": (lambda x: x.at[[0, 2]].set([BIG, BIG + 2]), [BIG, 1, BIG + 2]),
    "at add": (lambda x: x.at[:2].add(BIG), [BIG, BIG + 1, 2]),
    "dynamic_update": (lambda x: hl.dynamic_update(x, [BIG], (1,)), [0, BIG, 2]),
    "astype": (lambda x: x + hl.astype(BIG, "int64"), [BIG, BIG + 1, BIG + 2]),
    "arange": (lambda x: hl.arange(BIG, BIG + 3), [BIG, BIG + 1, BIG + 2]),
    "nonzero": (lambda x: hl.nonzero(x, size=3, fill_value=2**24 + 1)[0], [1, 2, 2**24 + 1]),
    "unique": (lambda x: hl.unique_values(x, size=4, fill_value=BIG), [0, 1, 2, BIG]),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEP_DIGITS)
def test_integers_keep_their_digits(name):
    function, wanted = KEEP_DIGITS[name]
    x = np.arange(3)
    assert np.asarray(hl.jit(function)(x)).tolist() == wanted
    assert np.asarray(hl.jit(function, backend="interp")(x)).tolist() == wanted
    assert np.asarray(function(hl.asarray(x))).tolist() == wanted


def test_a_traced_number_keeps_its_digits():
    assert int(hl.jit(lambda n: hl.astype(n, "int64"))(BIG)) == BIG
    assert float(hl.jit(lambda s: hl.astype(s, "float64"))(0.1)) == 0.1
    assert np.asarray(hl.jit(lambda x, n: x.at[0].set(n))(np.arange(2), BIG)).tolist() == [BIG, 1]
    assert np.asarray(hl.jit(lambda n: hl.full((2,), n, "int64"))(BIG)).tolist() == [BIG, BIG]


def test_floats_keep_their_digits():
    x = np.ones(2)
    for function in (lambda x: hl.pad(x, (0, 1), constant_values=0.1)[2], lambda x: x.at[0].set(0.1)[0], lambda x: x.at[:].set([0.1, 0.2])[0], lambda x: hl.full_like(x, 0.1)[0]):
        assert float(hl.jit(function)(x)) == 0.1


@pytest.mark.parametrize("function, where, given", [
    (lambda x: hl.full((2,), 2**31, "int32"), "full", "2147483648 with i32"), (lambda x: hl.full_like(x, -1, dtype="uint32"), "full_like", "-1 with u32"),
    (lambda x: hl.full((2,), np.nan.real, "int32"), "full", "nan with i32"), (lambda x: hl.full((2,), 1e20, "int64"), "full", r"1e\+20 with i64"),
    (lambda x: x.at[0].set(2**40), "at", "1099511627776 with i32"), (lambda x: hl.pad(x, 1, constant_values=2**40), "pad", "1099511627776 with i32"),
    (lambda x: x + 2**40, "add", "1099511627776 with i32"), (lambda x: hl.minimum(x, 2**40), "min", "1099511627776 with i32"),
    (lambda x: hl.astype(x, "int64") + 2**64, "add", "18446744073709551616 with i64"),
])  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(function, where, given):
    with pytest.raises(hl.UserError, match=rf"\[{where}\] a number must fit the array's dtype. Received: {given}. Try: "):
        hl.jit(function)(hl.asarray([1, 2]))
    with pytest.raises(hl.UserError, match=r"\] a number must fit the array's dtype|\] an integer argument must fit 64 bits"):
        function(hl.asarray([1, 2]))


def test_traced_numbers_that_do_not_fit_are_refused_too():
    add = hl.jit(lambda x, n: hl.maximum(x + n, n))
    assert add(hl.asarray([1]), 2).tolist() == [3]
    for n in (2**31, -(2**31) - 1, 2**40):
        with pytest.raises(hl.UserError, match=r"\[add\] a number must fit the array's dtype. Received: an integer of more than 32 bits with i32. Try: an array of int64."):
            add(hl.asarray([1]), n)
    assert add(np.array([1]), 2**40).tolist() == [2**40 + 1] and add(np.float32([1]), 2**40).tolist() == [2.0**40]


def test_traced_numbers_that_do_not_fit_uint32_are_refused_by_the_call():
    x = hl.asarray(np.array([5], np.uint32))
    add, put = hl.jit(lambda x, n: x + n), hl.jit(lambda x, n: hl.cond(x[0] > 0, lambda v: v.at[0].set(n), lambda v: v, x))
    assert add(x, 2**32 - 6).tolist() == [2**32 - 1] and put(x, 2**32 - 1).tolist() == [2**32 - 1]
    for n in (-1, 2**32, -(2**40)):
        for where, function in (("add", hl.add), ("add", add), ("at", put), ("at", lambda x, n: x.at[0].set(n)), ("sub", lambda x, n: n - x)):
            with pytest.raises(hl.UserError, match=rf"\[{where}\] a number must fit the array's dtype. Received: {n} with u32. Try: "):
                function(x, n)
        assert add(x, 1).tolist() == [6]
    for n in (1e20, float("nan")):
        with pytest.raises(hl.UserError, match=rf"\[at\] a number must fit the array's dtype. Received: {str(n).replace('+', '.')} with i32. Try: "):
            hl.jit(lambda x, n: x.at[0].set(n))(hl.asarray([1]), n)
    assert hl.subtract(np.array([0], np.uint32), 1).tolist() == [2**32 - 1]  # arithmetic of numbers that fit


def test_an_integer_alone_is_int64_where_it_does_not_fit():
    for n in (2**31, BIG, -BIG):
        for result in (hl.jit(lambda k: k)(n), hl.jit(lambda k: hl.stack([k, k])[0])(n), hl.positive(n), hl.where(np.array(True), n, 1), hl.jit(lambda k: k + 1 - 1)(n)):
            assert result.dtype == hl.int64 and int(result) == n
        assert hl.add(np.array(True), n).dtype == hl.int64 == hl.result_type(n) == hl.result_type(np.array(True), n)
    assert hl.result_type(1, 2**40) == hl.int64 == hl.result_type(True, 2**40) and hl.result_type(1.0, 2**40) == hl.float32
    for dtype, number in ((hl.int32, 2**40), (hl.uint32, -1), (hl.int64, 2**63)):
        with pytest.raises(hl.UserError, match=rf"\[result_type\] a number must fit the array's dtype. Received: {number} with "):
            hl.result_type(dtype, number)


def test_arange_goes_beyond_32_bits():
    assert hl.arange(2**31 - 1, 2**31 + 1).dtype == hl.int64 and hl.arange(2**31 - 1, 2**31).dtype == hl.int32 and hl.arange(0).dtype == hl.int32
    with pytest.raises(hl.UserError, match=r"\[arange\] the dtype must hold all numbers. Received: 0 to 2147483648 in int32. Try: hl.int64."):
        hl.arange(0, 2**31 + 1, 2**31, dtype=hl.int32)
