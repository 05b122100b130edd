"""Checks each Metal kernel by itself, as k2_mps_tests.kernels does, and survives each kernel.

    .venv/bin/python -m k2_mps_tests.report.kernels [--first-case] [FILE...]

An item is a kernel, or a file: whether it compiles, and has a check of each kernel.  If a file is
not right, its kernels are not known, and they are no items.
"""

import argparse
import collections
import functools
import importlib
import sys

import torch

from k2_mps_tests import ending
from k2_mps_tests.kernels import on_mps, runner, sources
from k2_mps_tests.report import items


def _first_cases(name, kernels):
    """Returns {kernel: [its first case]}; makes no more cases than that needs."""
    check = importlib.import_module(f"k2_mps_tests.kernels.checks.{name}")
    first = {}
    for case in check.cases():
        first.setdefault(case.kernel, [case])
        if kernels <= first.keys():
            break
    return first


def _all_cases(name, kernels):
    """Returns {kernel: [its cases]}."""
    cases = sources.cases(name)
    return {kernel: [case for case in cases if case.kernel == kernel] for kernel in kernels}


def _check(library, kernel, cases):
    """Checks the cases of a kernel; returns whether all results are right."""
    function = getattr(library, kernel)
    items.measured(
        kernel=kernel,
        max_threads=function.max_threads_per_threadgroup,
        simd_width=function.thread_execution_width,
        threadgroup_bytes=function.static_thread_group_memory_length,
        most_threads_asked=max(case.threads for case in cases),
    )

    times = collections.defaultdict(list)

    def outcomes():
        for case in cases:

            def run_once(contents, case=case):
                around = on_mps.timed(times[kernel, case.name])
                return on_mps.launch(library, case, contents, around)

            yield kernel, case.name, runner.check(run_once, case.all_buffers())

    right = runner.report(outcomes()) == 0
    items.measured(kernel=kernel, gpu_milliseconds=on_mps.slowest(times, kernel))
    return right


def _items(names, cases_of):
    """Yields (name of the item, function) for each kernel of files."""
    for name in names:

        @functools.cache
        def compiled(name=name):
            library = torch.mps.compile_shader(sources.text(name))
            kernels = set(dir(library))
            cases = cases_of(name, kernels)
            sources.require_all(name, [one[0] for one in cases.values() if one], kernels)
            return library, cases

        yield f"{name}.metal", lambda compiled=compiled: bool(compiled())
        if items.left_out().get(f"{name}.metal", "ok") != "ok":
            continue
        library, cases = compiled()
        for kernel in sorted(cases):
            yield (
                f"{name} {kernel}",
                lambda library=library, kernel=kernel, kernel_cases=cases[kernel]: _check(
                    library, kernel, kernel_cases
                ),
            )


def main():
    parser = argparse.ArgumentParser(prog="k2_mps_tests.report.kernels")
    parser.add_argument("--first-case", action="store_true", help="one case of each kernel")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    cases_of = _first_cases if options.first_case else _all_cases
    print("on mps" + (" (emulated)" if sys.platform != "darwin" else ""), flush=True)
    items.run(_items(options.files or sources.names(), cases_of))
    return 0


if __name__ == "__main__":
    ending.run(main)
