"""What the numbers were taken on."""

import datetime
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cpu_name():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def vectors():
    """The widest that the processor has; on which Hotloop's default target depends."""
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return "unknown"
    return "AVX-512" if "avx512f" in flags else "AVX2" if {"avx2", "fma"} <= set(flags) else "128-bit vectors"


def revision():
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def load():
    """Running programs, beside this one, on average over the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return float("nan")


def describe():
    return {
        "cpu": cpu_name(),
        "vectors": vectors(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "revision": revision(),
        "load_at_start": round(load(), 2),
        "OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", "not set"),
    }
