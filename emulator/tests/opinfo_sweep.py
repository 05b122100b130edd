"""torch's OpInfo samples in float32, forward and backward: mps against CPU.

    python tests/opinfo_sweep.py            # all operators, some minutes
    python tests/opinfo_sweep.py add svd    # some

Prints each entry that is not the same as on the CPU with the reason, and a
table.  The exit status is 1 where a difference has no explanation.  Everything
is emulated: the CPU's kernels are behind both sides, so equality shows that
the device, its copies, views and refusals are right, not what a GPU computes.
"""

import argparse
import collections
import functools
import re
import signal
import sys
import warnings

import torch
import torch.testing._internal.common_methods_invocations as invocations
from torch.utils import _pytree as pytree

# Entries whose results differ for a reason of their own: what it is.
EXPLAINED = {
    "as_strided.partial_views": "the sample is a view into a larger storage, "
    "which copying it to another device does not carry along",
    "tensor_split": "takes its indices from CPU tensors alone, on every "
    "device; the sweep moves all tensors",
    "svd_lowrank": "draws random numbers, which differ between devices",
    "pca_lowrank": "draws random numbers, which differ between devices",
    "svd": "no gradient: see linalg.svd",
    "linalg.svd": "no gradient: torch registers a fallback to the CPU for mps "
    "by hand, which hides the autograd of the operator, on a Mac as here",
    "sparse.sampled_addmm": "sparse CSR, a limit of the emulator",
    "sparse.mm.reduce": "sparse CSR, a limit of the emulator",
}
# The math version of attention is compared with the CPU's fused kernel: sums
# of some hundred products of rounding error 6e-8 in another order.
TOLERANCES = {"nn.functional.scaled_dot_product_attention": dict(rtol=1e-5, atol=5e-5)}
# The same kernels run on both sides, on copies of other alignment: vector
# instructions may begin elsewhere and add in another order.
TOLERANCE = dict(rtol=1e-5, atol=1e-5)

_RANDOM = re.compile(
    "empty|rand|dropout|bernoulli|normal|multinomial|uniform|exponential|cauchy|geometric"
)
_MISSING = re.compile(r"operator '(aten::[\w.]+)' is not currently implemented")


class Difference(Exception):
    """A result that is not the CPU's."""


class Slow(Exception):
    """The time for one entry is over."""


def name_of(op):
    variant = op.variant_test_name
    return op.name + ("." + variant if variant else "")


def tensors(values):
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def moved(values, device):
    """A copy of a sample's arguments, leaves of autograd again."""

    def move(value):
        if isinstance(value, torch.Tensor):
            copy = value.detach().to(device)
            return copy.requires_grad_(value.requires_grad)
        if isinstance(value, torch.device):
            return torch.device(device)
        if isinstance(value, str) and value == "cpu":
            return device
        return value

    return pytree.tree_map(move, values)


def compare(what, found, expected, values, tolerance):
    """values: whether the values themselves have to agree."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise Difference(
            f"{what} is {found.dtype} {tuple(found.shape)} instead of {expected.dtype} "
            f"{tuple(expected.shape)}"
        )
    if found.device.type != "mps" and expected.numel():
        raise Difference(f"{what} is on {found.device}")
    if not values:
        return
    try:
        torch.testing.assert_close(found.cpu(), expected, equal_nan=True, **tolerance)
    except AssertionError as error:
        first = " ".join(str(error).split())
        raise Difference(f"{what}: {first}") from None


def run_sample(op, sample, with_gradient, tolerance):
    """Raises what the mps device raises, or Difference.

    Returns whether there was something to compare: a sample that fails on the
    CPU is no sample.
    """
    values = _RANDOM.search(name_of(op)) is None
    arguments = (sample.input, sample.args, sample.kwargs)
    here, there = moved(arguments, "cpu"), moved(arguments, "mps")
    torch.manual_seed(0)
    try:
        expected = op(here[0], *here[1], **here[2])
    except Exception:
        return False
    torch.manual_seed(0)
    found = op(there[0], *there[1], **there[2])
    if len(tensors(found)) != len(tensors(expected)):
        raise Difference("another number of results")
    for a, b in zip(tensors(found), tensors(expected)):
        compare("a result", a, b, values, tolerance)
    if not with_gradient:
        return True

    def leaves(parts):
        return [t for t in tensors(parts) if t.requires_grad]

    inputs, outputs = leaves(here), leaves(expected)
    if not inputs or not outputs:
        return True
    torch.manual_seed(1)
    seeds = [torch.randn_like(output) for output in outputs]
    try:
        expected = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    except Exception:
        return True
    found = torch.autograd.grad(
        leaves(found), leaves(there), [seed.to("mps") for seed in seeds], allow_unused=True
    )
    for a, b in zip(found, expected):
        if (a is None) != (b is None):
            raise Difference("a gradient that only one side has")
        if a is not None:
            compare("a gradient", a, b, values, tolerance)
    return True


def run(op, samples, seconds):
    """Returns (category, detail) of an OpInfo."""
    name = name_of(op)
    if torch.float32 not in op.supported_dtypes("cpu"):
        return "no float32 on the CPU", ""
    with_gradient = op.supports_autograd and (torch.float32 in op.supported_backward_dtypes("cpu"))
    tolerance = TOLERANCES.get(name, TOLERANCE)
    signal.alarm(seconds)
    compared = 0
    try:
        inputs = op.sample_inputs("cpu", torch.float32, requires_grad=with_gradient)
        for number, sample in enumerate(inputs):
            if number == samples:
                break
            compared += run_sample(op, sample, with_gradient, tolerance)
    except Slow:
        return "unexplained", f"took more than {seconds} s"
    except NotImplementedError as error:
        if name in EXPLAINED:
            return "explained", EXPLAINED[name]
        missing = _MISSING.search(str(error))
        if missing:
            return "refused: no mps kernel on a Mac", missing[1]
        if "Sparse" in str(error):
            return "refused: sparse, as on a Mac", _first_line(error)
        return "unexplained", _first_line(error)
    except TypeError as error:
        if "float64" in str(error):
            return "refused: float64", ""
        return "unexplained", _first_line(error)
    except Exception as error:
        if name in EXPLAINED:
            return "explained", EXPLAINED[name]
        return "unexplained", f"{type(error).__name__}: {_first_line(error)}"
    finally:
        signal.alarm(0)
    if not compared:
        return "no sample that the CPU takes", ""
    return "same as on the CPU", ""


def _first_line(error):
    return str(error).split("\n")[0][:200]


def _on_alarm(*_):
    raise Slow


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--samples", type=int, default=12, help="of each operator, at most")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _on_alarm)
    table = collections.Counter()
    write = functools.partial(print, flush=True)
    for op in invocations.op_db:
        name = name_of(op)
        wanted = options.operators
        if wanted and name not in wanted and op.name not in wanted:
            continue
        category, detail = run(op, options.samples, options.seconds)
        table[category] += 1
        if category != "same as on the CPU":
            write(f"{name:<44} {category}{detail and ': ' + detail}")
    write(f"\n{'OpInfo entries, float32 (emulated)':<44} {'number':>8}")
    for category, number in table.most_common():
        write(f"{category:<44} {number:8d}")
    write(f"{'all':<44} {sum(table.values()):8d}")
    return 1 if table["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
