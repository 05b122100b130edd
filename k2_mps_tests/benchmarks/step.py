#!/usr/bin/env python3
"""GPU times of a transducer step's functions of k2: Metal's kernels beside k2's CUDA.

    .venv/bin/python -m k2_mps_tests.benchmarks.step record FOLDER small   # emulated mps
    python -m mps_emulator.replay prepare --times-only FOLDER/PART ...     # for each part
    step.py cuda small [FOLDER/operators.json]                             # an NVIDIA GPU

The step is icefall's: rnnt_loss_smoothed, get_rnnt_prune_ranges, do_rnnt_pruning and
rnnt_loss_pruned, forward and backward, with a boundary.  The joiner is not k2's: random logits
stand for its output.

`record` makes for each part a recording of k2's kernels, whose replay an NVIDIA GPU times, and
one file with torch's operators of all parts.  `cuda` needs k2 with CUDA and torch alone.  For
each part it prints the sum of the times of its GPU kernels, in milliseconds, the median of
several steps; for the file, the same of the operators, on random tensors of their shapes.
"""

import argparse
import contextlib
import json
import statistics
import sys
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Utterances, frames, symbols, vocabulary, symbols of a frame after pruning.
SIZES = {"small": (20, 300, 60, 500, 5), "large": (8, 500, 100, 5000, 5)}
WIDTH = 512  # of the joiner's input
REPEATS = 5


class Step:
    """The inputs of a step on a device.

    Args:
      size: an entry of SIZES.
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
        self.grads = [torch.randn(seqs, frames, self.s_range, WIDTH).to(device) for _ in range(2)]
        self.symbols = torch.randint(1, vocabulary, (seqs, symbols)).to(device)
        # The last utterance is three quarters as long as the first one.
        shares = torch.linspace(1, 0.75, seqs)
        boundary = torch.zeros(seqs, 4, dtype=torch.int64)
        boundary[:, 2] = (shares * symbols).to(torch.int64)
        boundary[:, 3] = (shares * frames).to(torch.int64)
        self.boundary = boundary.to(device)

    def run(self, part):
        """Runs the step; part(name) gives the context in which a part runs."""
        import k2

        common = dict(symbols=self.symbols, termination_symbol=0, boundary=self.boundary)
        with part("smoothed_forward"):
            simple, (px_grad, py_grad) = k2.rnnt_loss_smoothed(
                lm=self.lm,
                am=self.am,
                lm_only_scale=0.25,
                am_only_scale=0.0,
                reduction="sum",
                return_grad=True,
                **common,
            )
        with part("ranges"):
            ranges = k2.get_rnnt_prune_ranges(px_grad, py_grad, self.boundary, self.s_range)
        with part("pruning_forward"):
            pruned = k2.do_rnnt_pruning(self.am_in, self.lm_in, ranges)
        with part("pruned_forward"):
            loss = k2.rnnt_loss_pruned(logits=self.logits, ranges=ranges, reduction="sum", **common)
        with part("pruned_backward"):
            torch.autograd.grad(loss, self.logits)
        with part("pruning_backward"):
            torch.autograd.grad(pruned, (self.am_in, self.lm_in), self.grads)
        with part("smoothed_backward"):
            torch.autograd.grad(simple, (self.am, self.lm))


class Operators(TorchDispatchMode):
    """Notes torch's operators that give the device work.

    Attributes:
      calls: [[the operator's name, its arguments]]; a tensor is {"shape", "stride", "dtype"}.
    """

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not function.is_view and function.namespace == "aten":
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
        made = torch.empty_strided(
            described["shape"], described["stride"], dtype=dtype, device="cuda"
        )
        return made.uniform_() if dtype.is_floating_point else made.zero_()
    return [_made(x) for x in described] if isinstance(described, list) else described


def record(folder, size):
    """Records each part of a step on the emulated device."""
    import mps_emulator

    step = Step(SIZES[size], "mps")
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


@contextlib.contextmanager
def _gpu_milliseconds(name, into):
    """Adds the time of the GPU kernels of a context to into[name]."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        yield
        torch.cuda.synchronize()
    events = profile.key_averages()
    into.setdefault(name, []).append(sum(e.self_device_time_total for e in events) / 1000)


def cuda(size, operators):
    """Prints the GPU times of each part with k2's CUDA, and of torch's operators in a file."""
    torch.backends.cuda.matmul.allow_tf32 = False
    step = Step(SIZES[size], "cuda")
    step.run(lambda name: contextlib.nullcontext())
    times = {}
    for _ in range(REPEATS):
        step.run(lambda name: _gpu_milliseconds(name, times))
    _say(f"{torch.cuda.get_device_name()}, {size}, k2's CUDA", times)
    if operators is None:
        return
    times = {}
    for name, calls in json.loads(operators.read_text()).items():
        functions = [(_operator(call[0]), [_made(x) for x in call[1]]) for call in calls]
        for repeat in range(REPEATS + 1):
            with _gpu_milliseconds(name, {} if repeat == 0 else times):
                for function, args in functions:
                    function(*args)
    _say("torch's operators of the step on mps", times)


def _operator(name):
    _, operator, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, operator), overload)


def _say(title, times):
    print(title)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"  {name:<20} {median:8.3f} ms")
    print(f"  {'all':<20} {sum(medians.values()):8.3f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("folder", type=Path)
    one.add_argument("size", choices=SIZES)
    other = commands.add_parser("cuda")
    other.add_argument("size", choices=SIZES)
    other.add_argument("operators", type=Path, nargs="?")
    options = parser.parse_args()
    if options.command == "record":
        options.folder.mkdir(parents=True)
        record(options.folder, options.size)
    else:
        cuda(options.size, options.operators)


if __name__ == "__main__":
    sys.exit(main())
