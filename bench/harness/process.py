"""One implementation's worker process, as the driver sees it."""

import contextlib
import json
import os
import pathlib
import select
import subprocess

import numpy as np

# What a process frees it keeps, in one arena for its threads (glibc's allocator). A framework that allocates its results anew in each call is
# else measured by the price of fresh pages, which on a virtual machine is more than that of its arithmetic.
KEPT_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26)}


class Failed(Exception):
    pass


class Worker:
    """Started at the first task; started anew after it died or was too slow."""

    def __init__(self, impl, threads, pin=False):
        self.impl, self.threads, self.pin = impl, threads, pin
        self.process = None

    def _start(self):
        environment = {**os.environ, **KEPT_MEMORY, **self.impl.environment}
        command = [*self.impl.command, str(self.threads)]
        if self.pin:
            cores = sorted(os.sched_getaffinity(0))[-self.threads :]
            command = ["taskset", "-c", ",".join(map(str, cores)), *command]
        self.stop()
        with open(self.impl.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment)

    def ask(self, line, limit):
        if self.process is None or self.process.poll() is not None:
            self._start()
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._dead() from None
        if not select.select([self.process.stdout], [], [], limit)[0]:
            self.stop()
            raise Failed(f"no answer within {limit:.0f} s")
        answer = self.process.stdout.readline()
        if not answer:
            raise self._dead()
        answer = json.loads(answer)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _dead(self):
        status = self.process.wait()
        self.stop()
        return Failed(f"ended with status {status}; its messages are in {self.impl.log}")

    def prepare(self, task, folder, limit):
        """The answer and the results, as float64 arrays by name."""
        out = pathlib.Path(folder) / "out"
        for old in out.glob("*.npy"):
            old.unlink()
        out.mkdir(exist_ok=True)
        sizes = " ".join(f"{k}={int(v) if isinstance(v, bool) else v}" for k, v in task.sizes.items())
        answer = self.ask(f"prepare {task.kind} {folder} {sizes}", limit)
        return answer, {p.stem: np.load(p).astype(np.float64) for p in sorted(out.glob("*.npy"))}

    def time(self, seconds, limit):
        return self.ask(f"time {seconds}", limit)

    def forget(self):
        if self.process is not None and self.process.poll() is None:
            self.ask("forget", 60)

    def stop(self):
        if self.process is not None:
            with contextlib.suppress(BrokenPipeError), self.process:  # closes its pipes and waits
                self.process.kill()
            self.process = None
