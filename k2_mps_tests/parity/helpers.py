"""FSAs, comparisons and devices that the parity tests share."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

import k2
import torch

from k2_mps_tests.running import ran

MPS = torch.device("mps", 0)
# Twice the largest relative error of one rounding to float32.
EPS = torch.finfo(torch.float32).eps


def random_fsa_vec(num_fsas: int = 4, max_symbol: int = 20) -> k2.Fsa:
    """Returns an acyclic, connected and top-sorted FsaVec on the CPU.

    Each FSA has 3 to 59 states.  Most states have 3 leaving arcs.  Scores are normally distributed.
    torch's generator draws all numbers, so a seed always gives the same FSAs.
    """
    return k2.create_fsa_vec([_random_fsa(max_symbol) for _ in range(num_fsas)])


def _random_fsa(max_symbol: int) -> k2.Fsa:
    num_states = int(torch.randint(3, 60, ()))
    lines = []
    for state in range(num_states - 2):
        # One arc to the next state keeps all states connected.
        dests = [state + 1] + [int(torch.randint(state + 1, num_states - 1, ())) for _ in range(2)]
        for dest in sorted(dests):
            label = int(torch.randint(1, max_symbol + 1, ()))
            score = float(torch.randn(()))
            lines.append(f"{state} {dest} {label} {score:.6f}")
    lines.append(f"{num_states - 2} {num_states - 1} -1 {float(torch.randn(())):.6f}")
    lines.append(str(num_states - 1))
    return k2.arc_sort(k2.Fsa.from_str("\n".join(lines)))


def wide_fsa(width: int, arcs: int) -> k2.Fsa:
    """Returns an FSA with three layers of `width` states.

    Each state of the first two layers has `arcs` arcs to the next layer.  k2.connect() removes
    the states that no arc enters.
    """
    lines = [f"0 {1 + i} {1 + i % 9} {0.01 * (i % 31)}" for i in range(width)]
    first = 1
    for layer in range(2):
        for i in range(width):
            for k in range(arcs):
                dest = first + width + (i * 3 + k * 5) % width
                lines.append(f"{first + i} {dest} {1 + k % 9} {0.1 * ((i + k) % 7) - 0.2}")
        first += width
    last = first + width
    lines += [f"{first + i} {last} -1 {0.02 * (i % 3)}" for i in range(width)]
    lines.append(str(last))
    return k2.connect(k2.Fsa.from_str("\n".join(lines)))


def both(fsa: k2.Fsa) -> Iterable[k2.Fsa]:
    """Yields two copies of an FSA that require a gradient: one on the CPU, then one on mps."""
    for device in (torch.device("cpu"), MPS):
        yield fsa.to(device).clone().requires_grad_(True)


def on_both(function: Callable, fsa: k2.Fsa | None = None) -> list:
    """Returns the results of a function on the CPU and on mps, in this order.

    Args:
      function: takes the name of a device.  If `fsa` is given, the function instead takes a copy of
        `fsa` on the device.  This copy requires a gradient.
    """
    if fsa is None:
        return [function(device) for device in ("cpu", "mps")]
    return [function(moved) for moved in both(fsa)]


def is_reference_double(fsa: k2.Fsa, placement: str) -> bool:
    """Returns whether this FSA's scores are the reference for Metal, and so need float64.

    Metal's scores are as accurate as the CPU's float64 scores, with or without use_double_scores.
    So the CPU must compute the reference of Metal's scores in float64.  If the host computes the
    scores of an FSA on mps, the scores equal the CPU's scores of the same precision.
    """
    return placement == "metal" and fsa.device.type == "cpu"


class Close(NamedTuple):
    """A tensor of a result, and the tolerance of its elements: atol + rtol * |expected|."""

    tensor: torch.Tensor
    atol: float
    rtol: float


def assert_same(
    mps: torch.Tensor, cpu: torch.Tensor, where: str = "the tensor", **tolerance
) -> None:
    """Asserts that a tensor is on mps and has the values of a tensor on the CPU.

    Args:
      where: the tensor's name in the error.
      tolerance: atol and rtol of torch.testing.assert_close; without them the values
        must be equal.
    """
    assert mps.device == MPS, f"{where} is on {mps.device}"
    assert cpu.device.type == "cpu"
    if not tolerance:
        tolerance = {"atol": 0, "rtol": 0}
    torch.testing.assert_close(
        mps.cpu(), cpu, equal_nan=True, msg=lambda text: f"{where}: {text}", **tolerance
    )


def assert_equal_on_both(function: Callable, fsa: k2.Fsa | None = None, **tolerance) -> None:
    """Asserts that a function gives equal results on the CPU and on mps; see on_both()."""
    cpu, mps = on_both(function, fsa)
    assert_equal(mps, cpu, **tolerance)


def assert_equal(mps: object, cpu: object, where: str = "the result", **tolerance) -> None:
    """Asserts that a result on mps equals the result on the CPU.

    float64 tensors of the CPU are first rounded to float32.

    Args:
      mps, cpu: FSAs with their attributes and properties, k2.Nbest, ragged tensors and shapes,
        tensors, Close, tuples and lists of these, or other values.
      where: the result's name in the error.
      tolerance: the tolerance of assert_same(), for all tensors.
    """
    if isinstance(cpu, Close):
        assert_equal(mps.tensor, cpu.tensor, where, atol=cpu.atol, rtol=cpu.rtol)
    elif isinstance(cpu, (tuple, list)):
        assert len(mps) == len(cpu), f"{where}: {len(cpu)} on the CPU, {len(mps)} on mps"
        for i, (ours, theirs) in enumerate(zip(mps, cpu)):
            assert_equal(ours, theirs, f"{where}[{i}]", **tolerance)
    elif isinstance(cpu, torch.Tensor):
        assert mps.requires_grad == cpu.requires_grad, f"{where}: {mps.requires_grad=}"
        cpu = cpu.float() if cpu.dtype == torch.float64 else cpu
        assert_same(mps.detach(), cpu.detach(), where, **tolerance)
    elif isinstance(cpu, k2.RaggedTensor):
        assert_equal(mps.shape, cpu.shape, f"{where}.shape")
        assert_equal(mps.values, cpu.values, f"{where}.values", **tolerance)
    elif isinstance(cpu, k2.RaggedShape):
        assert mps.device == MPS, f"{where} is on {mps.device}"
        assert mps.num_axes == cpu.num_axes, f"{where}: {mps.num_axes=}"
        for axis in range(1, cpu.num_axes):
            assert_same(mps.row_splits(axis), cpu.row_splits(axis), f"{where}.row_splits({axis})")
            assert_same(mps.row_ids(axis), cpu.row_ids(axis), f"{where}.row_ids({axis})")
    elif isinstance(cpu, k2.Nbest):
        assert_equal((mps.shape, mps.fsa), (cpu.shape, cpu.fsa), where)
    elif isinstance(cpu, k2.Fsa):
        assert_same(mps.arcs.values(), cpu.arcs.values(), f"{where}.arcs")
        assert_equal(mps.arcs.shape(), cpu.arcs.shape(), f"{where}.arcs.shape")
        assert mps.properties == cpu.properties, f"{where}: {mps.properties_str}"
        for attributes in (k2.Fsa.named_tensor_attr, k2.Fsa.named_non_tensor_attr):
            ours, theirs = dict(attributes(mps)), dict(attributes(cpu))
            assert ours.keys() == theirs.keys(), f"{where}: {ours.keys()}"
            for name, value in theirs.items():
                assert_equal(ours[name], value, f"{where}.{name}")
    else:
        assert mps == cpu, f"{where} is {cpu} on the CPU and {mps} on mps"


def python(*arguments: object, **variables: str) -> subprocess.CompletedProcess:
    """Runs Python with these arguments in a new process; adds `variables` to the environment."""
    return ran(sys.executable, *arguments, env={**os.environ, **variables}, timeout=300)
