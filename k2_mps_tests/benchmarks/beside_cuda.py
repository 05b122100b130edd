#!/usr/bin/env python3
"""Times Metal's kernels and k2's own CUDA code on the same NVIDIA GPU.

    .venv/bin/python -m k2_mps_tests.benchmarks.beside_cuda record FOLDER small   # emulated mps
    python -m mps_emulator.replay prepare FOLDER/PART ... --times-only    # for each part
    beside_cuda.py cuda small [FOLDER/operators.json]                     # an NVIDIA GPU

The work is one of these:

- `small`, `large`: k2's part of a training step of icefall's transducer, forward and backward:
  rnnt_loss_smoothed, get_rnnt_prune_ranges, do_rnnt_pruning and rnnt_loss_pruned.  The step has a
  boundary.  The joiner is not a part of k2, so random logits take the place of its output.
- `ctc`: ctc_loss with its gradient, and intersect_dense.
- `decoding-B`: intersect_dense_pruned of B utterances with a CTC topology of 100 symbols.

`record` runs each part of the work on the emulated device and records k2's kernels.  An NVIDIA GPU
can then replay and time the recording.  `record` also writes a file that lists the torch operators
which the parts call.

`cuda` needs only torch and a k2 with CUDA.  `cuda` prints two times for each part: the sum of the
times of GPU kernels, and the time of the whole call with its waits.  Both times are medians of
several runs, in milliseconds.  If a file of operators is given, `cuda` also times these operators
on random tensors of the recorded shapes.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class StepSize(NamedTuple):
    """The sizes of a step."""

    utterances: int
    frames: int
    symbols: int
    vocabulary: int
    s_range: int  # of pruning


STEPS = {
    "small": StepSize(utterances=20, frames=300, symbols=60, vocabulary=500, s_range=5),
    "large": StepSize(utterances=8, frames=500, symbols=100, vocabulary=5000, s_range=5),
}
WIDTH = 512  # columns of the joiner's input
REPEATS = 5


class Step:
    """The inputs of a step on a device.

    Args:
      size: a StepSize.
      device: "mps" or "cuda".
    """

    def __init__(self, size, device):
        seqs, frames, symbols, vocabulary, self.s_range = size
        torch.manual_seed(0)

        def leaf(*shape):
            return torch.randn(*shape).to(device).requires_grad_(True)

        self.am = leaf(seqs, frames, vocabulary)
        self.lm = leaf(seqs, symbols + 1, vocabulary)
        self.am_in = leaf(seqs, frames, WIDTH)
        self.lm_in = leaf(seqs, symbols + 1, WIDTH)
        self.logits = leaf(seqs, frames, self.s_range, vocabulary)
        # The joiner adds its two inputs, so both get the same gradient.
        self.grads = [torch.randn(seqs, frames, self.s_range, WIDTH).to(device)] * 2
        self.one = torch.ones(()).to(device)
        self.symbols = torch.randint(1, vocabulary, (seqs, symbols)).to(device)
        # The last utterance is three quarters as long as the first one.
        shares = torch.linspace(1, 0.75, seqs)
        boundary = torch.zeros(seqs, 4, dtype=torch.int64)
        boundary[:, 2] = (shares * symbols).to(torch.int64)
        boundary[:, 3] = (shares * frames).to(torch.int64)
        self.boundary = boundary.to(device)

    def loss_arguments(self):
        """Returns the arguments that all losses of the step take."""
        return dict(
            symbols=self.symbols, termination_symbol=0, boundary=self.boundary, reduction="sum"
        )

    def smoothed(self):
        """Returns the smoothed loss, and (px_grad, py_grad)."""
        import k2

        return k2.rnnt_loss_smoothed(
            lm=self.lm,
            am=self.am,
            lm_only_scale=0.25,
            am_only_scale=0.0,
            return_grad=True,
            **self.loss_arguments(),
        )

    def ranges(self, grads):
        """Returns the ranges of pruning; grads: (px_grad, py_grad) of the smoothed loss."""
        import k2

        return k2.get_rnnt_prune_ranges(*grads, self.boundary, self.s_range)

    def run(self, part):
        """Runs the step.  Each part runs in the context that part(name of the part) returns."""
        import k2

        with part("smoothed_forward"):
            simple, grads = self.smoothed()
        with part("ranges"):
            ranges = self.ranges(grads)
        with part("pruning_forward"):
            pruned = k2.do_rnnt_pruning(self.am_in, self.lm_in, ranges)
        with part("pruned_forward"):
            loss = k2.rnnt_loss_pruned(logits=self.logits, ranges=ranges, **self.loss_arguments())
        with part("pruned_backward"):
            torch.autograd.grad(loss, self.logits, self.one)
        with part("pruning_backward"):
            torch.autograd.grad(pruned, (self.am_in, self.lm_in), self.grads)
        with part("smoothed_backward"):
            torch.autograd.grad(simple, (self.am, self.lm), self.one)


class Ctc:
    """ctc_loss with its gradient, and intersect_dense, on a device."""

    def __init__(self, device):
        import k2

        seqs, frames, symbols, vocabulary = 32, 500, 60, 500
        torch.manual_seed(0)
        targets = torch.randint(1, vocabulary, (seqs, symbols)).tolist()
        self.graph = k2.ctc_graph(targets, device=device)
        scores = (torch.randn(seqs, frames, vocabulary) * 2).log_softmax(-1)
        segments = torch.tensor([[i, 0, frames] for i in range(seqs)], dtype=torch.int32)
        self.dense = k2.DenseFsaVec(scores.to(device).requires_grad_(True), segments)

    def run(self, part):
        """Calls each function in the context that part(name of the function) returns."""
        import k2

        for double, name in ((True, "ctc_loss_double"), (False, "ctc_loss_float")):
            with part(name):
                loss = k2.ctc_loss(self.graph, self.dense, 8.0, use_double_scores=double)
                loss.backward(retain_graph=True)
        with part("intersect_dense"):
            k2.intersect_dense(self.graph, self.dense, 8.0)


class Decoding:
    """intersect_dense_pruned with a CTC topology, on a device.

    An utterance has 250 frames.  In each frame, the scores of symbols are random, and one symbol
    has a much higher score, as in the output of an acoustic model.
    """

    def __init__(self, seqs, device):
        import k2

        frames, symbols = 250, 100
        torch.manual_seed(0)
        scores = torch.randn(seqs, frames, symbols + 1) * 1.5
        best = torch.randint(symbols + 1, (seqs, frames, 1))
        scores.scatter_add_(2, best, torch.full(best.shape, 7.0))
        segments = torch.tensor([[i, 0, frames] for i in range(seqs)], dtype=torch.int32)
        self.dense = k2.DenseFsaVec(scores.log_softmax(-1).to(device), segments)
        self.graph = k2.create_fsa_vec([k2.ctc_topo(symbols)]).to(device)

    def run(self, part):
        """Calls the function in the context that part(name of the function) returns."""
        import k2

        with part("intersect_dense_pruned"):
            k2.intersect_dense_pruned(self.graph, self.dense, 20.0, 8.0, 30, 10_000)


def made(work, device):
    """Returns an object for the named work.  The object's run(part) does the work."""
    if work in STEPS:
        return Step(STEPS[work], device)
    if work == "ctc":
        return Ctc(device)
    return Decoding(int(work.removeprefix("decoding-")), device)


# Operators that give no work to the device.
IDLE = ("empty", "empty_like", "empty_strided")


class Operators(TorchDispatchMode):
    """Records those of torch's operators that give work to the device.

    Attributes:
      calls: [[the operator's name, its arguments]]; a tensor is {"shape", "stride", "dtype"}.
    """

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function).split(".")[1]
        tensors = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
        on_device = any(x.is_mps for x in tensors)
        if on_device and not function.is_view and name not in IDLE:
            self.calls.append([str(function), [_described(x) for x in args]])
        return function(*args, **(kwargs or {}))


def _described(argument):
    if isinstance(argument, torch.Tensor):
        return {
            "shape": list(argument.shape),
            "stride": list(argument.stride()),
            "dtype": str(argument.dtype).removeprefix("torch."),
        }
    if isinstance(argument, (list, tuple)):
        return [_described(x) for x in argument]
    return argument if isinstance(argument, (int, float, bool, type(None))) else str(argument)


def _made(described):
    if isinstance(described, dict):
        dtype = getattr(torch, described["dtype"])
        # An expanded axis, whose stride is 0, has one element in memory.
        shape, stride = described["shape"], described["stride"]
        own = [size if step else 1 for size, step in zip(shape, stride)]
        made = torch.empty_strided(own, stride, dtype=dtype, device="cuda")
        made = made.uniform_() if dtype.is_floating_point else made.zero_()
        return made.expand(shape)
    return [_made(x) for x in described] if isinstance(described, list) else described


def record(folder, work):
    """Records each part of the work on the emulated device."""
    import mps_emulator

    os.environ["K2_MPS_FORCE"] = "metal"
    step = made(work, "mps")
    step.run(lambda name: contextlib.nullcontext())
    operators = {}

    @contextlib.contextmanager
    def part(name):
        with mps_emulator.record(folder / name):
            with Operators() as noted:
                yield
            torch.mps.synchronize()
        operators[name] = noted.calls

    step.run(part)
    (folder / "operators.json").write_text(json.dumps(operators, indent=1))
    for name, calls in operators.items():
        print(f"{name}: {', '.join(call[0] for call in calls) or 'no operator of torch'}")


def times_of(run, repeats=REPEATS):
    """Times each part of the work that run(part) does, on CUDA.

    Returns {name of the part: (time of the GPU, time of the call)}, in milliseconds.
    """
    run(lambda name: contextlib.nullcontext())  # compiles kernels and fills caches
    gpu, call = {}, {}

    @contextlib.contextmanager
    def on_clock(name):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        yield
        torch.cuda.synchronize()
        call.setdefault(name, []).append((time.perf_counter() - begin) * 1000)

    @contextlib.contextmanager
    def profiled(name):
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            yield
            torch.cuda.synchronize()
        total = sum(event.self_device_time_total for event in seen.key_averages())
        gpu.setdefault(name, []).append(total / 1000)

    for part in (on_clock, profiled):
        for _ in range(repeats):
            run(part)
    return {name: (statistics.median(gpu[name]), statistics.median(call[name])) for name in gpu}


def cuda(work, operators):
    """Prints the times of each part in k2's CUDA code, and the times of torch's operators.

    operators: the path of the file of operators that `record` writes, or None.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    _say(f"{torch.cuda.get_device_name()}, {work}, k2's CUDA", times_of(made(work, "cuda").run))
    if operators is not None:
        parts = {
            name: [(_operator(call[0]), [_made(x) for x in call[1]]) for call in calls]
            for name, calls in json.loads(operators.read_text()).items()
        }

        def run(part):
            for name, calls in parts.items():
                with part(name):
                    for function, args in calls:
                        function(*args)

        _say("torch's operators of this work on mps", times_of(run))


def _operator(name):
    _, operator, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, operator), overload)


def _say(title, times):
    print(f"{title:<50} {'GPU':>8} {'call':>8}")
    for name, (gpu, call) in times.items():
        print(f"  {name:<48} {gpu:8.3f} {call:8.3f} ms")
    totals = [sum(values) for values in zip(*times.values())]
    print(f"  {'all':<48} {totals[0]:8.3f} {totals[1]:8.3f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("work")
    other = commands.add_parser("cuda")
    other.add_argument("work")
    other.add_argument("operators", type=Path, nargs="?")
    options = parser.parse_args()
    if options.command == "record":
        options.folder.mkdir(parents=True)
        record(options.folder, options.work)
    else:
        cuda(options.work, options.operators)


if __name__ == "__main__":
    sys.exit(main())
