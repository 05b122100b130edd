"""FSAs, comparisons and devices that the parity tests share."""

from collections.abc import Iterable

import k2
import torch

MPS = torch.device("mps", 0)


def random_fsa_vec(num_fsas: int = 4, max_symbol: int = 20) -> k2.Fsa:
    """Returns an FsaVec on the CPU, acyclic, connected and top-sorted.

    Each FSA has from 3 to about 60 states, 3 arcs a state, and scores of the
    order of 1.  Made by torch's generator, so that a seed gives the same.
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


def both(fsa: k2.Fsa) -> Iterable[tuple[torch.device, k2.Fsa]]:
    """Yields (device, the FSA there with requires_grad) for CPU and mps."""
    for device in (torch.device("cpu"), MPS):
        yield device, fsa.to(device).clone().requires_grad_(True)


def is_reference_double(fsa: k2.Fsa, placement: str) -> bool:
    """Whether scores of this FSA are to be double, to compare mps with.

    Metal's scores are as accurate as the CPU's float64, whatever the caller
    asks for; the host's are the CPU's floats.
    """
    return placement == "metal" and fsa.device.type == "cpu"


def assert_same(mps: torch.Tensor, cpu: torch.Tensor, **tolerance) -> None:
    """Asserts that a tensor is on mps and has the values of one on the CPU.

    Args:
      tolerance: atol and rtol of torch.testing.assert_close; exact equality
        if none is given.
    """
    assert mps.device == MPS, mps.device
    assert cpu.device.type == "cpu"
    if not tolerance:
        tolerance = {"atol": 0, "rtol": 0}
    torch.testing.assert_close(mps.cpu(), cpu, equal_nan=True, **tolerance)
