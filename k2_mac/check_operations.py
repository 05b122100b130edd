"""The operations that check.py compares on the CPU and on mps.

For each operation, OPERATIONS has a function that makes the inputs and a function that returns the
largest difference that is allowed.
"""

import math
from collections.abc import Callable

import k2
import torch

# The sizes of the problems: (sequences, frames, symbols, target length).
SIZES = {"small": (4, 60, 12, 8), "large": (32, 400, 60, 50)}

EPS = torch.finfo(torch.float32).eps


# Each function that returns an Operation makes the input on the CPU, with torch's random generator.
# The Operation copies the input to a device and returns a Run.  The Run computes the tensors to
# compare.
Run = Callable[[], list[torch.Tensor]]
Operation = Callable[[torch.device], Run]


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().requires_grad_(True)


def _ctc_input(size: str) -> tuple[torch.Tensor, torch.Tensor, list]:
    return _ctc_input_of(*SIZES[size])


def _ctc_input_of(
    N: int, T: int, symbols: int, length: int
) -> tuple[torch.Tensor, torch.Tensor, list]:
    logits = torch.randn(N, T, symbols)
    segments = torch.tensor([[i, 0, T - T // 8 * (i % 4)] for i in range(N)], dtype=torch.int32)
    # k2 expects the longest segment first.
    segments = segments[torch.argsort(segments[:, 2], descending=True)]
    targets = torch.randint(1, symbols, (N, length)).tolist()
    return logits, segments, targets


def _ctc_loss(size: str) -> Operation:
    logits, segments, targets = _ctc_input(size)

    def prepare(device):
        graphs = k2.ctc_graph(targets, device=device)
        on_device = logits.to(device)

        def run():
            leaf = _leaf(on_device)
            loss = k2.ctc_loss(
                graphs,
                k2.DenseFsaVec(leaf.log_softmax(-1), segments),
                output_beam=10,
                reduction="sum",
            )
            loss.backward()
            return [loss, leaf.grad]

        return run

    return prepare


def _decoding(size: str) -> Operation:
    N, T, symbols, length = SIZES[size]
    # The emulated device would need minutes for more.  Metal takes this search, too.
    logits, segments, _ = _ctc_input_of(min(N, 8), min(T, 100), symbols, length)
    log_probs = (3 * logits).log_softmax(-1)

    def prepare(device):
        topo = k2.ctc_topo(logits.size(2) - 1, device=device)
        on_device = log_probs.to(device)

        def run():
            lattice = k2.intersect_dense_pruned(
                topo,
                k2.DenseFsaVec(on_device, segments),
                search_beam=10,
                output_beam=4,
                min_active_states=20,
                max_active_states=500,
            )
            best = k2.shortest_path(lattice, use_double_scores=True)
            return [best.get_tot_scores(use_double_scores=True, log_semiring=False), best.labels]

        return run

    return prepare


def _tot_scores(size: str) -> Operation:
    logits, segments, targets = _ctc_input(size)
    lattice = k2.intersect_dense(
        k2.ctc_graph(targets), k2.DenseFsaVec(logits.log_softmax(-1), segments), output_beam=20
    )

    def prepare(device):
        on_device = lattice.to(device)

        def run():
            fsas = on_device.clone().requires_grad_(True)
            scores = fsas.get_tot_scores(use_double_scores=True, log_semiring=True)
            scores.sum().backward()
            return [scores, fsas.grad]

        return run

    return prepare


def _rnnt_input(size: str) -> tuple[torch.Tensor, ...]:
    N, T, symbols, length = SIZES[size]
    T //= 4
    boundary = torch.tensor([[0, 0, length - i % 3, T - i % 5] for i in range(N)])
    return (
        torch.randn(N, T, symbols),
        torch.randn(N, length + 1, symbols),
        torch.randint(1, symbols, (N, length)),
        boundary,
    )


def _rnnt_simple(size: str) -> Operation:
    inputs = _rnnt_input(size)

    def prepare(device):
        am, lm, symbols, boundary = (x.to(device) for x in inputs)

        def run():
            leaves = [_leaf(x) for x in (am, lm)]
            loss = k2.rnnt_loss_smoothed(
                am=leaves[0],
                lm=leaves[1],
                symbols=symbols,
                termination_symbol=0,
                lm_only_scale=0.1,
                am_only_scale=0.1,
                boundary=boundary,
                reduction="sum",
            )
            loss.backward()
            return [loss, *(leaf.grad for leaf in leaves)]

        return run

    return prepare


def _rnnt_pruned(size: str) -> Operation:
    am, lm, symbols, boundary = inputs = _rnnt_input(size)
    _, grads = k2.rnnt_loss_simple(
        lm=lm,
        am=am,
        symbols=symbols,
        termination_symbol=0,
        boundary=boundary,
        reduction="sum",
        return_grad=True,
    )
    cpu_ranges = k2.get_rnnt_prune_ranges(*grads, boundary, 5)

    def prepare(device):
        am, lm, symbols, boundary = (x.to(device) for x in inputs)
        ranges = cpu_ranges.to(device)

        def run():
            leaves = [_leaf(x) for x in (am, lm)]
            pruned = k2.do_rnnt_pruning(*leaves, ranges)
            loss = k2.rnnt_loss_pruned(sum(pruned), symbols, ranges, 0, boundary, reduction="sum")
            loss.backward()
            return [loss, *(leaf.grad for leaf in leaves)]

        return run

    return prepare


def _swoosh(size: str) -> Operation:
    N, T, symbols, _ = SIZES[size]
    cpu_x = 3 * torch.randn(N, T, 4 * symbols)

    def prepare(device):
        x = cpu_x.to(device)

        def run():
            # The backward pass rounds the gradient at random, so compare the derivative.
            return [*k2.swoosh_l_forward_and_deriv(x), *k2.swoosh_r_forward_and_deriv(x)]

        return run

    return prepare


def _ragged(size: str) -> Operation:
    N, T, symbols, _ = SIZES[size]
    values = [torch.randn(1 + (7 * i) % T).tolist() for i in range(N)]
    weights = torch.randn(N)

    def prepare(device):
        on_device = k2.RaggedTensor(values, device=device)
        factors = weights.to(device)

        def run():
            ragged = on_device.clone().requires_grad_(True)
            sums = ragged.logsumexp()
            (sums * factors).sum().backward()
            return [sums, ragged.grad, ragged.argmax()]

        return run

    return prepare


# The functions below return the largest difference that is allowed for a size.  With eight seeds
# for the small size and two for the large size, mps (emulated) differed from the CPU by a fifth of
# that or less.  The exp() and log() of a GPU are less exact than the emulator's: Metal allows 4
# units in the last place.


def _frames_tolerance(size: str) -> float:
    """The gradient has exponentials of sums over frames.

    The terms are torch's log_softmax, between -8 and 0, with an error of 4 units in the last place,
    which are 16 EPS.  k2 adds the terms in double precision.  The errors have random signs, so
    their sum grows as the square root of the number of frames.
    """
    frames = SIZES[size][1]
    return 16 * math.sqrt(frames) * EPS


def _recursion_tolerance(size: str) -> float:
    """The gradient has exponentials of scores that a recursion computes in float32.

    A score is the sum of a log-prob for each frame and symbol, near -log(symbols) each.  An error
    of 4 units in the last place of the largest score is allowed.
    """
    _, frames, symbols, length = SIZES[size]
    largest = (frames // 4 + length) * math.log(symbols)
    return 4 * EPS * 2.0 ** math.floor(math.log2(largest))


def _double_tolerance(size: str) -> float:
    """Both devices compute in double precision, or in pairs of floats, from the same scores.

    Each device rounds the scores and posteriors to float32 once, and the posterior is an
    exponential: 4 EPS.
    """
    return 4 * EPS


def _elements_tolerance(size: str) -> float:
    """Each result has an exponential or a logarithm of both devices, 4 EPS each."""
    return 8 * EPS


# {name: (the function that makes the operation, the function that returns the largest difference
# that is allowed)}.
OPERATIONS: dict[str, tuple[Callable[[str], Operation], Callable[[str], float]]] = {
    "ctc_loss": (_ctc_loss, _frames_tolerance),
    "intersect_dense_pruned, shortest_path": (_decoding, _double_tolerance),
    "get_tot_scores": (_tot_scores, _double_tolerance),
    "rnnt_loss_smoothed": (_rnnt_simple, _recursion_tolerance),
    "rnnt_loss_pruned": (_rnnt_pruned, _recursion_tolerance),
    "swoosh_l, swoosh_r": (_swoosh, _elements_tolerance),
    "RaggedTensor.logsumexp": (_ragged, _elements_tolerance),
}
