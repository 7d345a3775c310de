"""os.fork beside threads that compile: it waits for them, and the child compiles too."""

import subprocess
import sys
import textwrap

COMPILES = """
import os, signal, threading
import numpy as np
import hotloop as hl

stop = False

def compiled(i):
    constant = np.full((4, 4), i, np.float32)  # the program's own, so that whoever lets go of the program needs the GIL
    return hl.jit(lambda x: hl.tanh(x @ constant), backend=backend)(np.zeros((4, 4), np.float32))

def compile_on(start):
    while not stop:
        compiled(start + num_programs[start])
        num_programs[start] += 1

num_programs = {1000000: 0, 2000000: 0}
threads = [threading.Thread(target=compile_on, args=(start,)) for start in num_programs]
for thread in threads:
    thread.start()
signal.alarm(50)
"""


def run(backend, code):
    subprocess.run([sys.executable, "-W", "ignore", "-c", f"backend = {backend!r}\n" + COMPILES + textwrap.dedent(code)], check=True, timeout=60)


def test_the_child_compiles():
    run("llvm", """
        for i in range(15):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                compiled(i)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, i
        stop = True
    """)


def test_a_fork_does_not_wait_for_a_thread_that_waits_for_the_gil():
    # More programs than are kept, so that each one pushes another out.
    run("interp", """
        while sum(num_programs.values()) < 300:
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        stop = True
    """)


def test_a_child_ends_while_threads_of_its_parent_waited_for_the_gil():
    run("llvm", """
        import sys, time
        f, x = hl.jit(lambda x: hl.tanh(x).sum(), threads=1), np.ones(300_000, np.float32)
        f(x)

        def call():
            while not stop:
                f(x)

        callers = [threading.Thread(target=call, daemon=True) for _ in range(2)]
        for caller in callers:
            caller.start()
        for _ in range(15):
            busy = time.perf_counter() + 0.006  # longer than a thread keeps the GIL: the others wait for it
            while time.perf_counter() < busy:
                pass
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                sys.exit()  # unlike os._exit, the interpreter's end
            assert os.waitpid(child, 0)[1] == 0
        stop = True
    """)
