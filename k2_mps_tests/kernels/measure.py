"""Checks one file of kernels on mps: results, limits and times.

    python -m k2_mps_tests.kernels.measure NAME

The exit status is 1 if a result is wrong.  Each file needs a process of its own, so that
a crash does not affect other files.
"""

import contextlib
import sys
import time

import torch

from k2_mps_tests.kernels import on_mps, runner, sources

_COUNTS = "max_threads simd_width threadgroup_bytes most_threads_asked cases".split()


def measure(name: str) -> dict:
    """Measures a file of kernels.

    The result has the seconds of compiling the file, and for each kernel the limits, the number
    of right cases, the errors, and the longest time of a case on the GPU in
    milliseconds, by torch's timed events.
    """
    began = time.monotonic()
    library = torch.mps.compile_shader(sources.text(name))
    kernels = {}
    for kernel in dir(library):
        function = getattr(library, kernel)
        kernels[kernel] = {
            "max_threads": function.max_threads_per_threadgroup,
            "simd_width": function.thread_execution_width,
            "threadgroup_bytes": function.static_thread_group_memory_length,
            "most_threads_asked": 0,
            "cases": 0,
            "wrong": [],
            "gpu_milliseconds": 0.0,
        }
    compiled = time.monotonic() - began
    for case in sources.cases(name):
        found = kernels[case.kernel]
        found["cases"] += 1
        found["most_threads_asked"] = max(found["most_threads_asked"], case.threads)
        begin, end = (torch.mps.Event(enable_timing=True) for _ in range(2))

        @contextlib.contextmanager
        def timed():
            begin.record()
            yield
            end.record()

        def launch(contents):
            return on_mps.launch(library, case, contents, timed())

        messages = runner.check(launch, case.all_buffers())
        found["wrong"] += [f"{case.name}: {message}" for message in messages]
        torch.mps.synchronize()
        found["gpu_milliseconds"] = max(found["gpu_milliseconds"], begin.elapsed_time(end))
    return {"compile_seconds": compiled, "kernels": kernels}


def main(name: str) -> int:
    """Prints what was measured: facts and times on lines of their own, which diff compares."""
    found = measure(name)
    print(f"seconds to compile: {found['compile_seconds']:.1f}")
    for kernel, facts in found["kernels"].items():
        counts = (f"{fact} {facts[fact]}" for fact in _COUNTS)
        print(f"{kernel}: {', '.join(counts)}")
        print(f"{kernel}: gpu_milliseconds {facts['gpu_milliseconds']:.3f}")
        for message in facts["wrong"]:
            print(f"{kernel}: wrong: {message}")
    return int(any(facts["wrong"] for facts in found["kernels"].values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
