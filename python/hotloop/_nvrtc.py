"""NVRTC, the compiler that programs for a GPU need, where pip installs it: in a folder that no loader searches."""

import os
import sys


def show():
    """HOTLOOP_NVRTC, if it is not set, becomes the folder of packages that has NVRTC, if there is one. The engine looks in it when it looks for a GPU."""
    if "HOTLOOP_NVRTC" in os.environ:
        return
    for packages in sys.path:
        if any(os.path.isdir(os.path.join(packages, "nvidia", name, "lib")) for name in ("cu13", "cuda_nvrtc")):
            os.environ["HOTLOOP_NVRTC"] = packages
            return
