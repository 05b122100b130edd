"""Compares the emulated device with torch's own lists of what a Mac's mps device can do.

    python tests/oracle.py                # all operators
    python tests/oracle.py add linalg.qr  # two operators

torch's wheel has samples for each operator (OpInfo), the dtypes of the operator on mps, and the
cases in which torch's tests expect a failure on a Mac (common_mps).  Each operator runs with each
dtype, forward and backward:

- A case that runs on a Mac must run on the emulated device, with the CPU's results.
- A case that fails on a Mac, for example because mps lacks the dtype, must fail on the emulated
  device with at least one sample.

`oracle.toml` lists the cases that differ, with their reasons.  The command fails if an unlisted
case differs, or if a listed case does not differ.

The CPU's kernels compute the results on the emulated device and on the CPU.  So equal results show
that the emulated device, its copies and its views are correct.  They do not show what a GPU
computes.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import itertools
import pathlib
import platform
import re
import sys
import unittest.mock
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import isolated
import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:  # torch.testing must be imported as on a Mac, see _load()
    from torch.testing._internal.opinfo.core import OpInfo

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

DIFFERENCES = pathlib.Path(__file__).with_name("oracle.toml")

# The name of the device in torch's tests.  Some samples depend on the name.
DEVICE = "mps:0"

# The release of macOS that the emulated device reports.  For some releases, torch's lists of the
# expected failures differ.
MACOS = (15, 2)

DTYPES = {
    name: getattr(torch, name)
    for name in "bool uint8 int8 int16 int32 int64 half bfloat16 float cfloat".split()
}
# DTYPES and NAMES lack float64, because no operator on mps supports float64.
NAMES = {dtype: name for name, dtype in DTYPES.items()}

# {dtype: wider dtype}.  If the CPU's kernel of an operator lacks a dtype, the CPU computes the
# expected results in the wider dtype.
WIDER = {
    torch.half: torch.float,
    torch.bfloat16: torch.float,
    **dict.fromkeys(
        (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.double
    ),
}

# For a case that runs on a Mac, only the first samples run: some cases have hundreds of samples.
_MOST_SAMPLES = 50

_RANDOM = re.compile(
    "empty|rand|dropout|bernoulli|normal|multinomial|uniform|exponential|cauchy|geometric"
)


# ---- the lists


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator with a dtype, in one direction."""

    operator: str
    direction: str  # "forward" or "backward"
    dtype: str
    on_a_mac: str  # "runs" or "fails"


@contextlib.contextmanager
def as_a_mac() -> Iterator[None]:
    """Makes platform.mac_ver() return the release MACOS inside a `with` block."""
    release = ".".join(map(str, MACOS))
    with unittest.mock.patch.object(platform, "mac_ver", lambda: (release, ("", "", ""), "arm64")):
        yield


def _load():
    """Imports torch's OpInfos and common_mps as on a Mac with the release MACOS."""
    newer = torch.backends.mps.is_macos_or_newer
    assert newer(*MACOS) and not newer(MACOS[0], MACOS[1] + 1), "the device reports another release"
    with as_a_mac(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.testing._internal.common_methods_invocations as invocations
        import torch.testing._internal.common_mps as lists
    assert lists.MACOS_VERSION == float(".".join(map(str, MACOS))), "imported for another release"
    return invocations.op_db, lists


def _name(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def _mark(op, suite, test, dtype):
    """Reads how torch decorates a test for an operator.

    Args:
      suite, test: the names of the test's class and method.
    Returns:
      "skip" if torch skips the test, "fails" if torch expects a failure, else None.
    """

    def target(*_):
        pass

    for decorator in op.get_decorators(suite, test, "mps", dtype, {}):
        target = decorator(target)
    if getattr(target, "__unittest_skip__", False):
        return "skip"
    return "fails" if getattr(target, "__unittest_expecting_failure__", False) else None


def read_lists() -> tuple[dict[str, OpInfo], list[Case]]:
    """Returns torch's OpInfos by the names of their operators, and all cases."""
    op_db, lists = _load()
    cases = []

    def add(op, direction, dtype, mark, supported, exact):
        # If mps lacks a dtype, the operator is certain to fail on a Mac only if torch tests that
        # the operator has exactly the listed dtypes.
        if (supported and mark != "skip") or (not supported and exact):
            on_a_mac = "runs" if supported and mark is None else "fails"
            cases.append(Case(_name(op), direction, NAMES[dtype], on_a_mac))

    # On a Mac, TestCommon.test_dtypes tests that an operator has exactly the listed dtypes.  For
    # some operators, torch expects a failure of this test.
    exact = {_name(op): _mark(op, "TestCommon", "test_dtypes", None) is None for op in op_db}
    op_db = lists.mps_ops_modifier(op_db)
    for op in op_db:
        supported = op.supported_dtypes("mps")
        for dtype in DTYPES.values():
            mark = _mark(op, "TestConsistency", "test_output_match", dtype)
            add(op, "forward", dtype, mark, dtype in supported, exact[_name(op)])
    for op in lists.mps_ops_grad_modifier(op_db):
        supported = op.supported_dtypes("mps") & op.supported_backward_dtypes("mps")
        for dtype in (torch.half, torch.bfloat16, torch.float, torch.cfloat):
            mark = _mark(op, "TestConsistency", "test_output_grad_match", dtype)
            add(op, "backward", dtype, mark, dtype in supported, False)
    return {_name(op): op for op in op_db}, cases


# ---- one case


class Difference(Exception):
    """A result differs from the result on the CPU."""


class NoSample(Exception):
    """The CPU cannot run the sample, or the sample has no result to compare."""


def _tensors(values):
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _on_cpu(values, dtypes=None):
    """Copies a sample's arguments to the CPU.  The copied tensors are leaves of autograd.

    Args:
      dtypes: {dtype of the sample: dtype of the copy}, for the dtypes that differ.
    """
    dtypes = dtypes or {}

    def move(value):
        if isinstance(value, torch.Tensor):
            copy = value.detach().to("cpu", dtypes.get(value.dtype, value.dtype), copy=True)
            return copy.requires_grad_(value.requires_grad)
        if isinstance(value, torch.dtype):
            return dtypes.get(value, value)
        if isinstance(value, torch.device) and value.type == "mps":
            return torch.device("cpu")
        if isinstance(value, str) and value in ("mps", DEVICE):
            return "cpu"
        return value

    return pytree.tree_map(move, values)


def _run(op, sample, backward):
    """Runs an operator on a sample; returns the results, or the gradients if `backward`.

    Raises:
      NoSample: there is nothing to differentiate.
    """
    input, args, kwargs = sample
    torch.manual_seed(0)
    results = op(input, *args, **kwargs)
    if not backward:
        return _tensors(results) or [results]
    inputs = [tensor for tensor in _tensors(sample) if tensor.requires_grad]
    outputs = [tensor for tensor in _tensors(results) if tensor.requires_grad]
    if not inputs or not outputs:
        raise NoSample
    torch.manual_seed(1)
    seeds = [torch.randn(output.shape).to(output.device, output.dtype) for output in outputs]
    return torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)


def _expected(op, sample, backward, dtype):
    """Returns the CPU's results, and whether the CPU computed them in a wider dtype.

    Raises:
      NoSample: the CPU cannot run the sample.
    """
    try:
        return _run(op, _on_cpu(sample), backward), False
    except NoSample:
        raise
    except Exception as error:
        if dtype not in WIDER or "not implemented for" not in str(error):
            raise NoSample from None
    try:
        return _run(op, _on_cpu(sample, {dtype: WIDER[dtype]}), backward), True
    except Exception:
        raise NoSample from None


def _compare(found, expected, with_values, widened):
    """Raises Difference if a result is not as expected.

    Args:
      with_values: False to compare only shapes and dtypes.
      widened: whether `expected` has a wider dtype than the result must have.
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        if found != expected and found == found:
            raise Difference(f"{found} instead of {expected}")
        return
    if found.shape != expected.shape:
        raise Difference(f"a shape of {tuple(found.shape)} instead of {tuple(expected.shape)}")
    if found.dtype != expected.dtype and not widened:
        raise Difference(f"a dtype of {found.dtype} instead of {expected.dtype}")
    if not with_values:
        return
    # The same kernels run on both devices.  But the two copies of a tensor can differ in alignment,
    # so vector instructions may add the numbers in another order.
    close = {torch.float: dict(rtol=1e-5, atol=1e-5), torch.cfloat: dict(rtol=1e-5, atol=1e-5)}
    try:
        torch.testing.assert_close(
            found.cpu(), expected.to(found.dtype), equal_nan=True, **close.get(found.dtype, {})
        )
    except AssertionError as error:
        raise Difference(" ".join(str(error).split())) from None


def _samples(op, dtype, device):
    floating = dtype.is_floating_point or dtype.is_complex
    conjugated = dtype.is_complex and op.test_conjugated_samples
    for sample in op.sample_inputs(
        device, dtype, requires_grad=floating, include_conjugated_inputs=conjugated
    ):
        yield pytree.tree_map(_as_leaf, (sample.input, sample.args, sample.kwargs))


def _as_leaf(value):
    """Detaches a tensor that requires a gradient, so that it is a leaf like its copy on the CPU."""
    if isinstance(value, torch.Tensor) and value.requires_grad:
        return value.detach().requires_grad_()
    return value


def _judge_sample(op, case, sample):
    """Runs a sample on both devices, and compares the results.

    Returns:
      False if the sample has no results with which to judge the case.
    Raises:
      Difference: the results differ.
      Exception: the error of the operator on the emulated device.
    """
    backward = case.direction == "backward"
    try:
        expected, widened = _expected(op, sample, backward, DTYPES[case.dtype])
    except NoSample:
        if case.on_a_mac == "runs":
            return False
        expected = None
    try:
        found = _run(op, sample, backward)
    except NoSample:
        return False
    if expected is None:
        return True
    # A result must be on mps, unless the sample names a device or has no tensors.
    on_mps = bool(_tensors(sample)) and "device" not in sample[2]
    if len(found) != len(expected):
        raise Difference(f"{len(found)} results instead of {len(expected)}")
    for a, b in zip(found, expected):
        if on_mps and isinstance(a, torch.Tensor) and a.device.type != "mps":
            raise Difference(f"a result on {a.device} instead of mps")
        _compare(a, b, _RANDOM.search(case.operator) is None, widened)
    return True


def judge(op: OpInfo, case: Case) -> tuple[str, str]:
    """Runs the samples of a case; returns the outcome and a detail.

    The outcome is "same", "different", "refused" or "no sample".
    """
    dtype = DTYPES[case.dtype]
    compared = 0
    try:
        most = _MOST_SAMPLES if case.on_a_mac == "runs" else None
        for sample in itertools.islice(_samples(op, dtype, DEVICE), most):
            compared += _judge_sample(op, case, sample)
    except Difference as error:
        return "different", str(error)
    except isolated.Slow:
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: " + str(error).split("\n")[0][:200]
        if not compared and not _has_samples(op, dtype):
            return "no sample", detail
        return "refused", detail
    return ("same", "") if compared else ("no sample", "")


def _has_samples(op, dtype):
    """Whether the OpInfo has samples of this dtype on the CPU."""
    try:
        return next(_samples(op, dtype, "cpu"), None) is not None
    except Exception:
        return False


# ---- all cases, each operator in a separate process


def run(
    operators: dict[str, OpInfo], cases: Sequence[Case]
) -> Iterator[tuple[Case, tuple[str, str]]]:
    """Yields each case with its outcome and detail, as soon as it is judged."""
    groups = collections.defaultdict(list)
    for case in cases:
        groups[case.operator].append(case)
    yield from isolated.run(lambda case: judge(operators[case.operator], case), groups.values())


# ---- the differences


def differs(case: Case, outcome: str) -> str | None:
    """Returns how a case differs from a Mac, or None if it does not differ.

    Returns "accepted" for a case that fails on a Mac and runs on the emulated device.  For a case
    that runs on a Mac, returns its outcome: "refused", "different" or an outcome of isolated.run().
    """
    if case.on_a_mac == "fails":
        return "accepted" if outcome == "same" else None
    return None if outcome in ("same", "no sample") else outcome


_DIRECTIONS = {"forward": ["forward"], "backward": ["backward"], "both": ["forward", "backward"]}


def _release(text):
    return tuple(map(int, text.split(".")[:2]))


def read_differences() -> dict[tuple[str, str, str], str]:
    """Reads oracle.toml; returns {(operator, direction, dtype): difference}.

    The result has only the entries for the installed release of torch.  The dtypes of an entry
    are names of DTYPES, separated by spaces.
    """
    release = _release(torch.__version__)
    with open(DIFFERENCES, "rb") as file:
        groups = tomllib.load(file)["difference"]
    differences = {}
    for group in groups:
        assert group["reason"].strip()
        if not _release(group.get("from", "0")) <= release < _release(group.get("until", "99")):
            continue
        for title, directions in _DIRECTIONS.items():
            for operator, dtypes in group.get(title, {}).items():
                for key in itertools.product([operator], directions, dtypes.split()):
                    assert key not in differences, f"{key} is in the file twice"
                    differences[key] = group["found"]
    return differences


def complaints(
    outcomes: dict[Case, tuple[str, str]], differences: dict[tuple[str, str, str], str]
) -> list[str]:
    """Returns a line for each case whose difference is not the one that `differences` lists.

    Args:
      outcomes: the outcome and the detail of each case.
      differences: what read_differences() returns.
    """
    lines = []
    for case, (outcome, detail) in outcomes.items():
        found = differs(case, outcome)
        stated = differences.get((case.operator, case.direction, case.dtype))
        if found != stated:
            lines.append(
                f"{case.operator} {case.direction} {case.dtype}: {case.on_a_mac} on a Mac; "
                f"here {outcome}{detail and ': ' + detail}; stated: {stated or 'no difference'}"
            )
    return lines


def strangers(cases: Sequence[Case], differences: dict[tuple[str, str, str], str]) -> list[str]:
    """Returns a line for each entry of `differences` whose case is not in torch's lists."""
    listed = {(case.operator, case.direction, case.dtype) for case in cases}
    return [f"{' '.join(key)}: not in torch's lists" for key in differences.keys() - listed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    operators, cases = read_lists()
    if options.operators:
        unknown = set(options.operators) - set(operators)
        if unknown:
            parser.error("not in torch's lists: " + " ".join(sorted(unknown)))
    chosen = [c for c in cases if not options.operators or c.operator in options.operators]
    outcomes = dict(run(operators, chosen))
    differences = read_differences()
    lines = complaints(outcomes, differences) + strangers(cases, differences)
    print(*lines, sep="\n")
    table = collections.Counter((case.on_a_mac, outcomes[case][0]) for case in outcomes)
    print(f"\n{'on a Mac':<12} {'here (emulated)':<20} {'cases':>8}")
    for (on_a_mac, outcome), number in sorted(table.items()):
        print(f"{on_a_mac:<12} {outcome:<20} {number:8d}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
