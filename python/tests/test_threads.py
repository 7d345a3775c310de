"""Calls of several threads: interrupts of one, arguments that another one changes, first calls at the same time, the interpreter's end."""

import gc
import subprocess
import sys
import textwrap
import threading

import hotloop as hl
import numpy as np
import pytest
from hotloop import _core


def run(program, timeout=60):
    """Exit status and standard error of a program of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=timeout
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("handler", ["signal.default_int_handler", "lambda *_: None"], ids=["raises", "goes on"])
def test_an_interrupt_of_the_main_thread_leaves_others_alone(handler):
    status, error = run(f"""
        import os, signal, threading, time
        import hotloop as hl
        import numpy as np

        signal.signal(signal.SIGINT, {handler})
        long = hl.jit(lambda x, w: hl.scan(lambda c, _: (hl.tanh(c @ w), None), x, None, length=40)[0], threads=2)
        short = hl.jit(lambda x: x + 1)
        mine = hl.jit(lambda x: hl.scan(lambda c, _: (c * 1.0001 + hl.sum(hl.tanh(x * c)), None), np.float32(1), None, length=2000)[0], threads=1)
        rng = np.random.default_rng(0)
        x, w, y, one = rng.random((384, 96), np.float32), rng.random((96, 96), np.float32) * 0.05, np.ones(5000, np.float32), np.ones(3, np.float32)
        wanted, own = np.array(long(x, w)), np.array(mine(y))
        short(one)
        stop, wrong = threading.Event(), []

        def others():
            while not stop.is_set():
                if not np.array_equal(long(x, w), wanted) or not np.array_equal(short(one), [2, 2, 2]):
                    wrong.append(1)

        def interrupts():
            while not stop.is_set():
                time.sleep(0.005)
                os.kill(os.getpid(), signal.SIGINT)

        threads = [threading.Thread(target=others), threading.Thread(target=interrupts)]
        for t in threads:
            t.start()
        heard, end = 0, time.time() + 2
        while time.time() < end:
            try:
                assert np.array_equal(mine(y), own)
            except KeyboardInterrupt:
                heard += 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop.set()
        for t in threads:
            t.join()
        assert not wrong, len(wrong)
        assert ({handler!r} == "lambda *_: None") == (heard == 0), heard
    """)
    assert (status, error) == (0, "")


def test_a_call_keeps_its_arguments():
    def body(w, c):
        return c + hl.sum(hl.tanh(w * c)), None

    long = hl.jit(lambda p, x: hl.scan(lambda c, _: body(p["w"], c), x, None, length=300)[0], threads=1)
    params = {"w": np.full((512, 512), 1e-3, np.float32)}
    wanted = float(long(params, np.float32(1)))
    whole = 0
    for attempt in range(100):
        params = {"w": np.full((512, 512), 1e-3, np.float32)}
        thread = threading.Timer(0.001 * (attempt % 10), params.clear)
        thread.start()
        try:
            assert float(long(params, np.float32(1))) == wanted
            whole += 1
        except KeyError:  # it was gone before the call began
            pass
        thread.join()
        if whole == 3:
            return
    raise AssertionError("no call began before its argument was gone")


def test_first_calls_at_the_same_time_leave_one_program_a_shape():
    double = hl.jit(lambda x: hl.tanh(x) * 2)

    def calls():
        for n in range(1, 20):
            double(np.ones(n, np.float32))

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert _core.num_specializations(double) == 19


@pytest.mark.parametrize("size", [10, 1_000_000], ids=["short", "long"])
def test_a_daemon_thread_in_a_call_at_the_end(size):
    assert run(f"""
        import threading, time
        import hotloop as hl
        import numpy as np

        f, x = hl.jit(lambda x: hl.sum(hl.tanh(x))), np.ones({size}, np.float32)
        f(x)

        def loop():
            while True:
                f(x)

        threading.Thread(target=loop, daemon=True).start()
        time.sleep(0.1)
    """) == (0, "")


@pytest.mark.parametrize("size", [10, 1_000_000], ids=["short", "long"])
def test_a_function_for_the_end_waits_for_a_thread_in_calls(size):
    """One that was registered before the package was imported runs last."""
    assert run(f"""
        import atexit, threading, time

        stop, done = threading.Event(), []

        def end():
            stop.set()
            thread.join(20)
            assert done == [True]

        atexit.register(end)

        import hotloop as hl
        import numpy as np

        f, x = hl.jit(lambda x: hl.sum(hl.tanh(x))), np.ones({size}, np.float32)
        f(x)

        def loop():
            while not stop.is_set():
                f(x)
            done.append(True)

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        time.sleep(0.1)
    """) == (0, "")


def test_calls_of_what_python_deletes_at_its_end():
    assert run("""
        import sys

        import hotloop as hl
        import numpy as np

        class Last:
            def __init__(self):
                self.f, self.x = hl.jit(lambda x: hl.sum(hl.tanh(x))), np.ones(1_000_000, np.float32)
                self.told = sys.stderr

            def __del__(self):
                print(float(self.f(self.x)) > 0, float(self.f(self.x[:5])) > 0, file=self.told)

        last = Last()
        last.itself = last
    """) in [(0, "True True\n"), (0, "")]  # some versions delete none of a cycle


@pytest.mark.parametrize("backend", ["llvm", "interp"])
@pytest.mark.parametrize("wrap", [hl.asarray, np.asarray], ids=["hotloop", "numpy"])
@pytest.mark.parametrize("size", [3, 64, 65, 1000])
def test_captured_arrays_are_kept_as_they_were(size, wrap, backend):
    memory, x = np.ones(size, np.float32), np.full(size, 2, np.float32)
    captured = wrap(memory)
    times = hl.jit(lambda x: x * captured, backend=backend)
    assert np.array_equal(times(x), x)
    memory[:] = 3
    assert np.array_equal(times(x), x)
    again = hl.jit(lambda x: x * np.ones(size, np.float32), backend=backend)  # the same program
    assert np.array_equal(again(x), x)


@pytest.mark.parametrize("size", [3, 1000])
def test_bound_arrays_are_kept_as_they_were(size):
    params = {"weight": np.ones((1, size), np.float32), "bias": np.zeros(1, np.float32)}
    predict, x = hl.nn.Linear(size, 1).bind(params), np.ones((2, size), np.float32)
    before = np.array(predict(x))
    params["weight"][:], params["bias"][:] = 5, 7
    assert np.array_equal(predict(x), before)


def test_copies_of_a_function_of_ones_own_share_one_reference():
    """C++ makes and drops them without the lock, so that they must not be counted by Python."""

    def loss(prediction, target):
        return hl.mean((prediction - target) ** 2)

    def references():
        gc.collect()
        return sys.getrefcount(loss)

    before = references()
    of_engine = hl.losses.engine_loss(loss)
    assert references() == before + 1
    copies = [_core.loss_metric(of_engine) for _ in range(10)]
    assert references() == before + 1
    del of_engine, copies
    assert references() == before


def test_a_sub_interpreter_is_refused():
    # A call there would wait for ever.
    interpreters = pytest.importorskip("_xxsubinterpreters")
    status, error = run(f"""
        import {interpreters.__name__} as interpreters
        import numpy  # whose own warning about it comes first
        code = "import sys, warnings; warnings.simplefilter('ignore'); sys.path[:] = " + repr(__import__('sys').path) + "; import hotloop"
        interpreters.run_string(interpreters.create(), code)
    """)
    assert status == 1 and "[hotloop] it must be imported in the main interpreter of a process. Received: a sub-interpreter." in error
