"""torch.nn.functional.ctc_loss on mps.

From release 2.14 on, torch has its own kernel for mps.

On the CPU, ctc_loss() calls torch's function, which reads foreign memory for a label that no column
has.  On mps, ctc_loss() refuses such a label.  A program that is tried on the CPU and then runs on
mps must meet the same error on both, so ctc_loss() refuses the label on the CPU, too.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

# torch sums over all paths, so k2 must prune no path.  The score of each path differs from the best
# score by less than this beam.
_BEAM = 1e10

_torch_ctc_loss = F.ctc_loss

# Whether torch has its own kernel for mps.
_TORCH_HAS_KERNEL = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)

_Lengths = torch.Tensor | Sequence[int]


def install_ctc_loss(force: bool = False) -> None:
    """Replaces ``torch.nn.functional.ctc_loss`` by :func:`ctc_loss`.

    ``torch.nn.CTCLoss`` then calls :func:`ctc_loss` too.  From release 2.14 on, torch has its own
    kernel for mps, so without ``force`` this function replaces nothing.

    If a module has run ``from torch.nn.functional import ctc_loss`` before, the name ``ctc_loss``
    in that module still refers to torch's function.

    Args:
      force:
        True to replace torch's function even if torch has its own kernel.
    """
    if force or not _TORCH_HAS_KERNEL:
        F.ctc_loss = ctc_loss


def uninstall_ctc_loss() -> None:
    """Undoes :func:`install_ctc_loss`."""
    F.ctc_loss = _torch_ctc_loss


def _check(right: bool, text: str) -> None:
    if not right:
        raise RuntimeError(text)


def _numbers(lengths: _Lengths, name: str, size: int, most: int) -> list[int]:
    """Checks lengths and returns them as a list.

    Args:
      lengths:
        A tensor, a sequence or a number; torch accepts these types too.
      name:
        The name of the argument, for messages.
      size:
        The number of sequences.
      most:
        The largest length that is allowed.
    """
    if isinstance(lengths, torch.Tensor):
        _check(not lengths.is_floating_point(), f"{name} must be integers. Given: {lengths.dtype}")
    numbers = torch.as_tensor(lengths).reshape(-1).tolist()
    _check(
        len(numbers) == size,
        f"{name} must have one for each of {size} sequences. Given: {len(numbers)}",
    )
    _check(
        all(0 <= number <= most for number in numbers),
        f"{name} must be within [0, {most}]. Given: {numbers}",
    )
    return numbers


def _labels(
    targets: torch.Tensor, lengths: list[int], num_labels: int, blank: int
) -> list[list[int]]:
    """Returns the labels of each sequence, renumbered so that the blank is 0."""
    _check(not targets.is_floating_point(), f"targets must be integers. Given: {targets.dtype}")
    rows = targets.cpu()
    if rows.ndim == 2:
        _check(
            len(rows) == len(lengths),
            f"targets must have a row for each of {len(lengths)} sequences. Given: {len(rows)}",
        )
        rows = [row[:n].tolist() for row, n in zip(rows, lengths)]
    else:
        _check(
            rows.numel() == sum(lengths),
            f"targets has {rows.numel()} labels, and target_lengths add up to {sum(lengths)}",
        )
        rows = [row.tolist() for row in rows.reshape(-1).split(lengths)]
    for row in rows:
        _check(
            all(0 <= label < num_labels and label != blank for label in row),
            f"labels must be within [0, {num_labels - 1}] and not the blank, {blank}. Given: {row}",
        )
    return [[label + 1 if label < blank else label for label in row] for row in rows]


def _check_cpu(log_probs: torch.Tensor, targets: torch.Tensor, target_lengths: _Lengths) -> None:
    """Refuses labels on the CPU with which torch's own ctc_loss reads foreign memory or crashes."""
    if log_probs.ndim == 0:
        return  # torch raises an error.
    labels, classes = targets, log_probs.shape[-1]
    if targets.ndim == 2:
        lengths = torch.as_tensor(target_lengths, device="cpu").reshape(-1, 1)
        if lengths.shape[0] != targets.shape[0]:
            return  # torch raises an error.
        is_padding = torch.arange(targets.shape[1], device="cpu") >= lengths
        labels = targets[~is_padding]
    wrong = labels[(labels < 0) | (labels >= classes)]
    _check(
        wrong.numel() == 0, f"labels must be within [0, {classes - 1}]. Given: {wrong[:9].tolist()}"
    )


class _Losses(torch.autograd.Function):
    """Computes the loss of each sequence.

    The backward pass returns the gradient with respect to the input of the log_softmax that made
    log_probs.  torch's operator does the same.
    """

    @staticmethod
    def forward(
        ctx,
        log_probs: torch.Tensor,
        labels: list[list[int]],
        num_frames: list[int],
        blank: int,
        zero_infinity: bool,
    ) -> torch.Tensor:
        import k2  # only a program that computes the loss needs k2

        T, N, C = log_probs.shape
        device = log_probs.device
        # k2 expects the blank in column 0.
        columns = torch.arange(C, device=device)
        if blank != 0:
            columns = torch.cat([columns[blank : blank + 1], columns[:blank], columns[blank + 1 :]])
        # k2 is fastest if the longest sequence is the first.
        order = sorted(range(N), key=lambda n: -num_frames[n])
        segments = [[n, 0, num_frames[n]] for n in order]
        segments = torch.tensor(segments, dtype=torch.int32, device="cpu")
        with torch.enable_grad():
            scores = log_probs.detach().transpose(0, 1)[:, :, columns]
            scores.requires_grad_(ctx.needs_input_grad[0])
            graphs = k2.ctc_graph([labels[n] for n in order], device=device)
            losses = k2.ctc_loss(
                graphs, k2.DenseFsaVec(scores, segments), output_beam=_BEAM, reduction="none"
            )
            total = losses.sum()
        original = torch.tensor(order, device=device).argsort()
        ans = losses.detach()[original]
        frames = torch.arange(T, device=device).unsqueeze(1)
        is_inside = frames < torch.tensor(num_frames, device=device)
        # If the score of a path is NaN, k2 ignores the path, but torch returns NaN.
        is_nan = is_inside & log_probs.isnan().any(dim=2)
        ans = torch.where(is_nan.any(dim=0), float("nan"), ans)
        if ctx.needs_input_grad[0]:
            (grad,) = torch.autograd.grad(total, scores)
            grad = grad[:, :, columns.argsort()].transpose(0, 1)
            grad = torch.where(is_inside.unsqueeze(2), grad + log_probs.exp(), 0.0)
            # If a sequence has no path, torch's gradient is NaN in all frames of the sequence.
            nothing = 0.0 if zero_infinity else float("nan")
            for value, wrong in ((nothing, ans == float("inf")), (float("nan"), ans.isnan())):
                wrong = (wrong & is_inside).unsqueeze(2)
                grad = torch.where(wrong, value, grad)
            ctx.save_for_backward(grad)
        return ans

    @staticmethod
    def backward(ctx, losses_grad: torch.Tensor):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "k2 cannot differentiate ctc_loss twice. Leave out create_graph=True."
            )
        (grad,) = ctx.saved_tensors
        return (grad * losses_grad.unsqueeze(1),) + (None,) * 4


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: _Lengths,
    target_lengths: _Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Computes ``torch.nn.functional.ctc_loss``, on mps too.

    The arguments, the loss and the gradients are those of torch's function.  k2 computes the loss
    on mps, and torch computes the loss on other devices.  For a large batch, k2 makes no lattice,
    see :func:`k2.ctc_loss`.

    Raises:
      ValueError: ``reduction`` is not 'none', 'mean' or 'sum'.
      RuntimeError: another argument has a wrong shape, type or value.  On the CPU, torch itself
        would read foreign memory for a label that no column of ``log_probs`` has.
    """
    if log_probs.device.type == "cpu":
        _check_cpu(log_probs, targets, target_lengths)
    if log_probs.device.type != "mps":
        return _torch_ctc_loss(
            log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity
        )
    on_mps = _ctc_loss
    # Up to torch 2.14, a compiled graph may use a masked value in place of another, see faults.py.
    if torch.compiler.is_compiling():
        on_mps = torch.compiler.disable(on_mps)
    return on_mps(
        log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity
    )


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: _Lengths,
    target_lengths: _Lengths,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> torch.Tensor:
    """Computes ctc_loss() of tensors on mps."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    scores = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    _check(
        scores.ndim == 3 and scores.numel() != 0,
        f"log_probs must be (T, N, C) or (T, C) and not empty. Given: {tuple(log_probs.shape)}",
    )
    T, N, C = scores.shape
    _check(0 <= blank < C, f"blank must be within [0, {C - 1}]. Given: {blank}")
    num_frames = _numbers(input_lengths, "input_lengths", N, T)
    most = targets.shape[1] if targets.ndim == 2 else targets.numel()
    lengths = _numbers(target_lengths, "target_lengths", N, most)
    labels = _labels(targets, lengths, C, blank)
    losses = _Losses.apply(scores.float(), labels, num_frames, blank, zero_infinity)
    if zero_infinity:
        losses = torch.where(losses == float("inf"), 0.0, losses)
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        sizes = torch.tensor(lengths, dtype=losses.dtype, device=losses.device)
        return (losses / sizes.clamp(min=1)).mean()
    return losses if log_probs.ndim == 3 else losses.squeeze(0)


# The function for recipes: torch's function if torch has its own kernel for mps, else k2's
# function.
gpu_ctc_loss = _torch_ctc_loss if _TORCH_HAS_KERNEL else ctc_loss
