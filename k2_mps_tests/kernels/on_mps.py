"""Runs the checks on torch's mps device: the GPU of a Mac, or the emulated device."""

import collections
import contextlib
import sys
import time

import numpy as np
import torch

from k2_mps_tests import gpu_times
from k2_mps_tests.kernels import runner, sources


def run(say=print, names=(), runs=2, metallibs=None):
    """Runs the checks; returns an exit status.

    For each kernel, prints a line of facts, and a line with the GPU's times of the case that takes
    longest.  The facts do not vary from run to run, so `diff` can compare them.

    Args:
      say: a function that prints a line.
      names: the names of files of kernels, without .metal; empty for all files.
      runs: how often to launch each case.
      metallibs: a folder with a file .metallib for each file of kernels, whose kernels are launched
        instead of those of the texts.
    Raises:
      LookupError: a file or a kernel has no check.
    """
    emulated = " (emulated)" if sys.platform == "linux" else ""

    def outcomes():
        for name in names or sources.names():
            library = library_of(name, metallibs, say)
            cases = sources.cases(name)
            sources.require_all(name, cases, dir(library))
            times, most = collections.defaultdict(list), collections.Counter()
            for case in cases:
                most[case.kernel] = max(most[case.kernel], case.threads)

                def run_once(contents):
                    return launch(library, case, contents, timed(times[case.kernel, case.name]))

                yield case.kernel, case.name, runner.check(run_once, case.all_buffers(), runs)
            for kernel in dir(library):
                say(f"{kernel}: {facts_of(getattr(library, kernel), most[kernel])}")
                say(f"{kernel}: gpu_milliseconds{emulated} {slowest(times, kernel)}")

    say(f"on mps{emulated}")
    return runner.report(outcomes(), say)


def library_of(name, metallibs, say):
    """Compiles a file of kernels, or loads its .metallib; prints how long that took.

    Args:
      metallibs, say: see run().
    """
    began = time.monotonic()
    if metallibs is None:
        library, verb = torch.mps.compile_shader(sources.text(name)), "compile"
    else:
        library, verb = torch.mps.load_metallib(str(metallibs / f"{name}.metallib")), "load"
    say(f"{name}: seconds to {verb} {time.monotonic() - began:.1f}")
    return library


def facts_of(kernel, threads):
    """Returns, as text, the limits of a kernel, and the threads that the largest case asks for."""
    facts = {
        "max_threads": kernel.max_threads_per_threadgroup,
        "simd_width": kernel.thread_execution_width,
        "threadgroup_bytes": kernel.static_thread_group_memory_length,
        "most_threads_asked": threads,
    }
    return ", ".join(f"{fact} {value}" for fact, value in facts.items())


@contextlib.contextmanager
def timed(times):
    """Appends the GPU's milliseconds for the launches in a `with` block to `times`."""
    with gpu_times.measured() as taken:
        yield
    times.append(taken.milliseconds)


def slowest(times, kernel):
    """Returns, as text, the times of the case of a kernel that takes longest.

    Args:
      times: {(kernel, case): the milliseconds of each run, or None}.
    """
    found = {case: gpu_times.spread(taken) for (of, case), taken in times.items() if of == kernel}
    slow = max(found, key=lambda case: found[case]["median"] if found[case] else -1, default=None)
    if slow is None or found[slow] is None:
        return gpu_times.text(None)
    return f"{gpu_times.text(found[slow])} in {len(times[kernel, slow])} runs of {slow!r}"


def by_position(arguments):
    """Converts {number: tensor} to the list of arguments for a kernel of compile_shader().

    Argument i is [[buffer(i)]].  For a number that no argument of the kernel has, the list has an
    unused tensor.
    """
    unused = torch.zeros(1, device="mps")
    return [arguments.get(number, unused) for number in range(max(arguments) + 1)]


def tensor_of(content):
    """Returns a copy of an array as a tensor on mps.  A kernel sees only bits."""
    if content.dtype.names:  # torch has no structs.
        content = content.view(np.uint8)
    elif content.dtype == np.uint16:  # torch's tensors of uint16 do not work on all devices.
        content = content.view(np.int16)
    return torch.from_numpy(content).to("mps")


def launch(library, case, contents, around=contextlib.nullcontext()):
    """Launches a case on copies of the arrays in `contents`; returns the changed copies.

    Args:
      library: the result of torch.mps.compile_shader().
      contents: {name: array}, with the names of case.all_buffers().
      around: a context manager that is entered for the launches, after the arrays are copied.
    """
    tensors = {name: tensor_of(content) for name, content in contents.items()}
    kernel, threads = getattr(library, case.kernel), case.threads
    launches = [
        (groups, by_position({number: tensors[name] for number, name in names.items()}))
        for groups, names in case.launches()
    ]
    with around:
        for groups, arguments in launches:
            kernel(*arguments, threads=groups * threads, group_size=threads)
    return {
        name: tensor.cpu().numpy().view(contents[name].dtype) for name, tensor in tensors.items()
    }
