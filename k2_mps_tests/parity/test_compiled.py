"""torch.compile does not compile k2's losses on mps: no compiled graph has operators of a loss.

If the inductor of torch 2.13 or 2.14 compiled the losses, their gradients would be wrong, see
docs/migration.md.
"""

import importlib

import pytest
import torch

# k2.rnnt_loss is a function, which hides the module of the same name.
rnnt_loss = importlib.import_module("k2.rnnt_loss")
from k2_mac import torch_ctc  # noqa: E402

BATCHES, SYMBOLS, FRAMES, CLASSES = 2, 3, 5, 6


def arguments(device: str) -> dict[str, torch.Tensor]:
    """Returns arguments of the losses.  Symbols are int32, but k2's kernels take only int64."""
    random = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random).to(device).requires_grad_()

    return {
        "lm": numbers(BATCHES, SYMBOLS + 1, CLASSES),
        "am": numbers(BATCHES, FRAMES, CLASSES),
        "logits": numbers(BATCHES, FRAMES, SYMBOLS + 1, CLASSES),
        "px": numbers(BATCHES, SYMBOLS, FRAMES + 1),
        "py": numbers(BATCHES, SYMBOLS + 1, FRAMES),
        "symbols": torch.tensor([[1, 4, 2], [3, 5, 1]], dtype=torch.int32, device=device),
        "ranges": torch.tensor([0, 0, 1, 2, 2]).reshape(1, 5, 1).repeat(2, 1, 2).to(device)
        + torch.arange(2, device=device),
        "boundary": torch.tensor([[0, 0, 3, 5], [0, 0, 2, 4]], device=device),
    }


def pruned(function):
    return lambda given: function(
        given["logits"][:, :, :2], given["symbols"].long(), given["ranges"], 0, given["boundary"]
    )


def from_lm_and_am(function, **scales: float):
    return lambda given: function(
        given["lm"], given["am"], given["symbols"], 0, boundary=given["boundary"], **scales
    )


FUNCTIONS = {
    "get_rnnt_logprobs": from_lm_and_am(rnnt_loss.get_rnnt_logprobs),
    "get_rnnt_logprobs_smoothed": from_lm_and_am(
        rnnt_loss.get_rnnt_logprobs_smoothed, lm_only_scale=0.1, am_only_scale=0.2
    ),
    "rnnt_loss_simple": from_lm_and_am(rnnt_loss.rnnt_loss_simple),
    "rnnt_loss_smoothed": from_lm_and_am(
        rnnt_loss.rnnt_loss_smoothed, lm_only_scale=0.1, am_only_scale=0.2
    ),
    "get_rnnt_logprobs_joint": lambda given: rnnt_loss.get_rnnt_logprobs_joint(
        given["logits"], given["symbols"].long(), 0, boundary=given["boundary"]
    ),
    "rnnt_loss": lambda given: rnnt_loss.rnnt_loss(
        given["logits"], given["symbols"].long(), 0, boundary=given["boundary"]
    ),
    "get_rnnt_logprobs_pruned": pruned(rnnt_loss.get_rnnt_logprobs_pruned),
    "get_hat_logprobs_pruned": pruned(rnnt_loss.get_hat_logprobs_pruned),
    "rnnt_loss_pruned": pruned(rnnt_loss.rnnt_loss_pruned),
    "get_rnnt_prune_ranges": lambda given: rnnt_loss.get_rnnt_prune_ranges(
        given["px"], given["py"], given["boundary"], 2
    ),
    "get_rnnt_prune_ranges_deprecated": lambda given: rnnt_loss.get_rnnt_prune_ranges_deprecated(
        given["px"], given["py"], given["boundary"], 2
    ),
    "do_rnnt_pruning": lambda given: rnnt_loss.do_rnnt_pruning(
        given["am"], given["lm"], given["ranges"]
    ),
    "ctc_loss": lambda given: torch_ctc.ctc_loss(
        given["am"].transpose(0, 1).log_softmax(-1), given["symbols"], (5, 4), (3, 2)
    ),
}


def values(result) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def compiled(function, given: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[str]]:
    """Compiles and calls a function.

    Returns the tensors of the result, and the names of the operators in the compiled graphs.
    """
    operators = []

    def backend(module, inputs):
        operators.extend(node.name for node in module.graph.nodes if node.op.startswith("call"))
        return module.forward

    torch._dynamo.reset()
    return values(torch.compile(function, backend=backend)(given)), operators


@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_on_mps_have_no_operator_of_a_loss(name):
    given = arguments("mps")
    found, operators = compiled(FUNCTIONS[name], given)
    # The functions of FUNCTIONS call these operators to make the arguments of the losses.
    assert set(operators) <= {"long", "getitem", "transpose", "log_softmax"}, operators
    for from_compiled, expected in zip(found, values(FUNCTIONS[name](given)), strict=True):
        assert torch.equal(from_compiled, expected)


def test_every_public_function_of_the_module_is_tested():
    public = {
        name
        for name, value in vars(rnnt_loss).items()
        if callable(value) and getattr(value, "__module__", "") == "k2.rnnt_loss"
    }
    without = {name for name in public if name.startswith("_")} | {"fix_for_boundary"}
    assert public - without == set(FUNCTIONS) - {"ctc_loss"}


def test_graphs_on_the_cpu_have_the_operators_of_a_loss():
    """For the CPU, torch compiles k2's losses, and compiled() records their operators."""
    _, operators = compiled(FUNCTIONS["get_rnnt_logprobs_joint"], arguments("cpu"))
    assert len(operators) > 10
