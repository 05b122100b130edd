"""The questions of docs/first-mac.md that only a Mac answers; the verdict of each has the answer.

.venv/bin/python -m k2_mps_tests.report.questions QUESTION
"""

import contextlib
import io
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import torch

from k2_mps_tests import ending
from k2_mps_tests.kernels import sources
from k2_mps_tests.report import items

EMULATED = " (emulated)" if sys.platform != "darwin" else ""
METALLIBS = sources.TESTS.parent / "build/metallibs"


def _arguments(buffers):
    """Returns the arguments of a kernel of compile_shader() from {number: Buffer}."""
    from k2_mps_tests.kernels import on_mps

    tensors = {number: on_mps.tensor_of(buffer.content) for number, buffer in buffers.items()}
    return on_mps.by_position(tensors)


def _milliseconds(run):
    """Returns how long a function takes, including the wait for the GPU."""
    torch.mps.synchronize()
    began = time.perf_counter()
    run()
    torch.mps.synchronize()
    return (time.perf_counter() - began) * 1e3


def registers():
    """How long does ctc_sums take for 32 sequences of 500 frames and 60 symbols?"""
    from k2_mps_tests.kernels.checks import ctc

    class Unpruned(ctc.Batch):
        """A batch of which no arc is pruned, without the expected results."""

        def _reference(self):
            self.kept = np.full((self.most_rows, self.num_words), 2**32 - 1, np.uint32)
            self.totals = np.zeros((len(self.states), 2), np.float32)
            self.scores = np.zeros(len(self.states))
            shapes = [(rows + 1, n) for rows, n in zip(self.rows, self.states)]
            self.sums = [(np.zeros(shape), np.zeros(shape)) for shape in shapes]

    frames, most, repeats = 500, 5, 5
    if EMULATED:
        frames, most, repeats = 50, 2, 1
        print("the emulated device gets 50 frames, because a launch with 500 takes 3 seconds")
    # A graph of 60 symbols has a state for each symbol and each blank, and up to 3 arcs a state.
    batch = Unpruned(ctc.Shape([2 * 60 + 1] * 32, 3, [frames] * 32, 1), ctc.BEAM, 0.0)
    library = torch.mps.compile_shader(sources.text("ctc"))
    for kind in ctc.KINDS:
        case = batch.sums_case("", kind, rows_of_block=16)
        kernel, arguments = getattr(library, case.kernel), _arguments(case.buffers)

        def launch(times):
            for _ in range(times):
                kernel(*arguments, threads=case.groups * case.threads, group_size=case.threads)

        launch(1)  # The first launch makes the pipeline.
        # The difference leaves out the host's time and the wait.
        few, many = (
            [_milliseconds(lambda: launch(times)) for _ in range(repeats)] for times in (1, most)
        )
        took = (statistics.median(many) - statistics.median(few)) / (most - 1)
        items.measured(kernel=case.kernel, frames=frames, milliseconds=took, one=few, several=many)
        items.answer(
            f"{case.kernel} takes {took:.2f} ms{EMULATED} for {frames} frames, with up to"
            f" {kernel.max_threads_per_threadgroup} threads in a threadgroup"
        )
    return True


def _dispatch(states, num_arcs, width, frames):
    """Times one dispatch of the kernel intersect_dense, which makes a step for each frame.

    Args: as for Shape in k2_mps_tests/kernels/checks/intersect_dense.py, but `frames` is a number.
    """
    from k2_mps_tests.kernels.case import Buffer, ints
    from k2_mps_tests.kernels.checks import intersect_dense as check
    from k2_mps_tests.kernels.graphs import Graphs

    random = np.random.default_rng(1)
    graphs = Graphs.random(random, states, num_arcs, check.SYMBOLS)
    scores = random.standard_normal((frames * len(states), check.COLUMNS)).astype(np.float32)
    num_states, number = int(graphs.state_begins[-1]), check.Number
    params = Buffer.struct(
        check.PARAMS,
        stride=check.COLUMNS,
        num_columns=check.COLUMNS,
        num_states=num_states,
        width=width,
        first_row=0,
        last_row=frames,
    )
    arguments = _arguments(
        {
            number.kIdArcs: Buffer(graphs.arcs.view(np.int32)),
            number.kIdStateBegins: ints(graphs.state_begins),
            number.kIdLeavingBegins: ints(graphs.leaving_begins),
            number.kIdIncomingBegins: ints(graphs.incoming_begins),
            number.kIdIncoming: ints(graphs.incoming),
            number.kIdBScores: Buffer(scores),
            number.kIdBBegins: ints(np.arange(len(states) + 1) * frames),
            number.kIdAToBMap: ints(range(len(states))),
            number.kIdStateScores: Buffer(np.zeros((frames + 1) * 2 * num_states, np.float32)),
            number.kIdParams: params,
        }
    )
    kernel = torch.mps.compile_shader(sources.text("intersect_dense")).intersect_dense
    threads = min(check.MAX_THREADS, -(-max(states) * width // 32) * 32)
    groups = 2 * len(states)
    took = _milliseconds(lambda: kernel(*arguments, threads=groups * threads, group_size=threads))
    state_scores = arguments[number.kIdStateScores].cpu()
    last = state_scores[-2 * num_states :]
    items.measured(steps=frames, arcs=len(graphs.arcs) * frames, milliseconds=took)
    finished = bool((last != 0).all())
    items.answer(
        f"a dispatch of {frames} steps and {len(graphs.arcs) * frames} arcs takes {took:.0f} ms"
        f"{EMULATED}" + ("" if finished else ", and macOS stopped it")
    )
    return finished


def steps():
    """Does macOS let a dispatch of 65,536 steps end?"""
    return _dispatch([2 * 60 + 1], 3, 1, 1 << 16)


def arcs():
    """Does macOS let a dispatch of 2^28 arcs end?"""
    num_arcs, arcs_of_step = 1 << 28, 4 * 100 * 40
    if EMULATED:
        # An emulated arc takes about 20 ns, so 2^28 arcs in two directions would take 10 s.
        num_arcs >>= 6
        print("the emulated device gets 2^22 arcs, because 2^28 arcs would take minutes")
    return _dispatch([100] * 4, 40, 8, num_arcs // arcs_of_step)


# Kernels that a Mac ends with an error.  The condition keeps the compiler from removing the loop.
BAD_KERNELS = """
#include <metal_stdlib>
using namespace metal;
kernel void outside(device int *x [[buffer(0)]], constant long &far [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  x[far + long(i)] = 1;
}
kernel void endless(device atomic_int *x [[buffer(0)]]) {
  while (atomic_load_explicit(x, memory_order_relaxed) == 0) {
    atomic_fetch_max_explicit(x + 1, 1, memory_order_relaxed);
  }
}
"""


def _failure(spoil):
    """Lets a command buffer fail that has a kernel of k2; asks what k2 says.

    Args:
      spoil: a context manager that makes the command buffer fail.
    """
    os.environ["K2_MPS_FORCE"] = "metal"
    import k2

    px = torch.randn(2, 3, 5).to("mps")
    py = torch.randn(2, 4, 4).to("mps")
    k2.mutual_information_recursion(px, py)
    torch.mps.synchronize()
    began = time.perf_counter()
    try:
        with spoil():
            k2.mutual_information_recursion(px, py)
            # This operation waits for the GPU and launches nothing.
            k2.RaggedTensor([[1.0], [2.0]], device="mps").sum()
    except RuntimeError as error:
        items.answer(f"an error after {time.perf_counter() - began:.1f} s: {error}")
        return "did not complete k2 mutual_information" in str(error)
    items.answer(f"no error after {time.perf_counter() - began:.1f} s")
    return False


@contextlib.contextmanager
def _bad_kernel(name, *arguments):
    kernel = getattr(torch.mps.compile_shader(BAD_KERNELS), name)
    kernel(torch.zeros(64, dtype=torch.int32, device="mps"), *arguments, threads=32, group_size=32)
    yield


def fault():
    """Does k2 raise an error that names the kernel if the GPU writes to a bad address?"""
    if EMULATED:
        from mps_emulator import failing_command_buffer

        return _failure(failing_command_buffer)
    return _failure(lambda: _bad_kernel("outside", 1 << 40))


def timeout():
    """Does k2 raise an error that names the kernel if macOS ends a dispatch that takes too long?"""
    if EMULATED:
        return _no_answer("the emulated device ends a process whose kernel never ends")
    return _failure(lambda: _bad_kernel("endless"))


def streams():
    """Do the tests of two streams pass?"""
    if not hasattr(torch.mps, "Stream"):
        return _no_answer(
            f"torch {torch.__version__} has one stream; make mac-report TORCH=2.15.0 answers this"
        )
    tests = ("k2_mps_tests/parity/test_streams.py", "--rounds=200", "-v", "-p", "no:cacheprovider")
    status = subprocess.run([sys.executable, "-m", "pytest", *tests]).returncode
    items.answer("the tests of two streams " + ("fail" if status else "pass"))
    return status == 0


def virtual():
    """Does `import k2` work on a virtual machine, with the warning that mps is missing?"""
    asked = ("sysctl", "-n", "kern.hv_vmm_present")
    if EMULATED or subprocess.run(asked, capture_output=True, text=True).stdout.strip() != "1":
        return _no_answer("this machine is not virtual" + EMULATED)
    import k2

    has_mps = torch.backends.mps.is_available()
    reason = k2.mps.unavailable_reason()
    items.answer(
        f"import k2 works; torch {torch.__version__} finds {'' if has_mps else 'no '}mps; k2 says:"
        f" {' '.join((reason or 'mps is available').split())}"
    )
    # k2 must say why mps is missing.
    return has_mps or reason is not None


def wait():
    """How long does a wait take?"""
    from k2_mps_tests.benchmarks import wait

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        wait.main()
    items.answer("a wait without pending work takes " + ", ".join(said.getvalue().splitlines()))
    kernel = torch.mps.compile_shader("kernel void one(device float *x) { x[0] = 1; }").one
    x = torch.zeros(1, device="mps")
    times = [_milliseconds(lambda: kernel(x, threads=1)) * 1e3 for _ in range(200)]
    low, middle, high = statistics.quantiles(times[10:], n=4)
    items.measured(microseconds_of_dispatch_and_wait=[low, middle, high])
    items.answer(
        f"a dispatch and its wait take {middle:.0f} us{EMULATED}, half of them {low:.0f} to"
        f" {high:.0f} us"
    )
    return True


def metallib():
    """Does Metal load kernels that were compiled on Linux, and are they right?"""
    from k2_mps_tests.kernels import on_mps

    names = sources.names()
    if EMULATED:
        from mps_emulator.msl.errors import ToolError

        names = ["graph_index"]
        print("the emulated device gets one file, because all files would take a minute")
        try:
            sources.write_metallibs(METALLIBS, names)
        except ToolError as error:
            return _no_answer(str(error))
    absent = [name for name in names if not (METALLIBS / f"{name}.metallib").exists()]
    if absent:
        return _no_answer(
            f"build/metallibs lacks {', '.join(absent)}; on Linux,"
            " python -m k2_mps_tests.kernels --write-metallibs makes the files"
        )
    refused, wrong = [], []
    for name in names:
        try:
            if on_mps.run(names=[name], runs=1, metallibs=METALLIBS) != 0:
                wrong.append(name)
        except RuntimeError as error:
            print(error)
            refused.append(name)
    items.answer(
        f"Metal{EMULATED} loads {len(names) - len(refused)} of {len(names)} files that were"
        f" compiled on Linux; refused: {', '.join(refused) or 'none'}; wrong:"
        f" {', '.join(wrong) or 'none'}"
    )
    return not refused and not wrong


def _no_answer(why):
    items.answer(why)
    sys.exit(items.NO_ANSWER)


# {name: function}
QUESTIONS = {
    "registers": registers,
    "steps": steps,
    "arcs": arcs,
    "fault": fault,
    "timeout": timeout,
    "streams": streams,
    "virtual": virtual,
    "wait": wait,
    "metallib": metallib,
}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in QUESTIONS:
        sys.exit(f"questions: {', '.join(QUESTIONS)}")
    question = QUESTIONS[sys.argv[1]]
    print(question.__doc__, flush=True)
    return 0 if question() else 1


if __name__ == "__main__":
    ending.run(main)
