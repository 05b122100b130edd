"""Runs the checks on torch's mps device, a Mac's or the emulated one."""

import contextlib
import functools
import sys

import numpy as np
import torch

from k2_mps_tests.kernels import runner, sources


def run(say=print, names=(), runs=2):
    """Runs the checks; returns an exit status.

    Args:
      names: files of kernels, without .metal; empty for all.
      runs: how often to launch each case.
    Raises:
      LookupError: a file or a kernel has no check.
    """

    def outcomes():
        for name in names or sources.names():
            library = torch.mps.compile_shader(sources.text(name))
            cases = sources.cases(name)
            sources.require_all(name, cases, dir(library))
            for case in cases:
                run_once = functools.partial(launch, library, case)
                yield case.kernel, case.name, runner.check(run_once, case.all_buffers(), runs)

    say("on mps" + (" (emulated)" if sys.platform == "linux" else ""))
    return runner.report(outcomes(), say)


def launch(library, case, contents, around=contextlib.nullcontext()):
    """Launches a case on copies of arrays; returns the copies.

    Args:
      around: a context for the launches alone, without the copies.
    """
    # Not all devices have unsigned types; a kernel sees only bits.
    tensors = [
        torch.from_numpy(content.view(np.int16) if content.dtype == np.uint16 else content).to(
            "mps"
        )
        for content in contents
    ]
    kernel, threads = getattr(library, case.kernel), case.threads
    with around:
        for groups, arguments in case.launches():
            kernel(*[tensors[i] for i in arguments], threads=groups * threads, group_size=threads)
    return [tensor.cpu().numpy().view(content.dtype) for tensor, content in zip(tensors, contents)]
