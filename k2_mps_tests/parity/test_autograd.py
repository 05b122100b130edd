"""Gradients on mps are mps tensors, connected to the graph."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS, assert_equal_on_both, random_fsa_vec


def _numeric(function, x, step=1e-2):
    """Central differences of a scalar function of a 1-D tensor on mps."""
    grad = torch.zeros(len(x))
    for i in range(len(x)):
        values = []
        for sign in (1, -1):
            y = x.detach().clone()
            y[i] += sign * step
            values.append(function(y).item())
        grad[i] = (values[0] - values[1]) / (2 * step)
    return grad


def _small(scores=None):
    fsas = k2.create_fsa_vec(
        [k2.Fsa.from_str("0 1 1 0.3\n0 1 2 -0.4\n0 2 3 0.2\n1 2 1 0.5\n1 3 -1 0.1\n2 3 -1 -0.6\n3")]
    ).to("mps")
    if scores is not None:
        fsas.scores = scores
    return fsas


SCALARS = {
    "tot": lambda f: f.get_tot_scores(True, True).sum(),
    "tot_tropical": lambda f: f.get_tot_scores(True, False).sum(),
    "forward": lambda f: (
        f.get_forward_scores(True, True)[1:] * torch.tensor([1.0, 2.0, 4.0], device=MPS)
    ).sum(),
    "backward": lambda f: (
        f.get_backward_scores(True, True)[:3] * torch.tensor([1.0, 2.0, 4.0], device=MPS)
    ).sum(),
    "arc_post": lambda f: (f.get_arc_post(True, True) * torch.arange(1.0, 7.0, device=MPS)).sum(),
}


@pytest.mark.parametrize("name", SCALARS)
def test_against_differences(name):
    x = _small().scores.detach().clone()

    def function(scores):
        return SCALARS[name](_small(scores))

    leaf = x.clone().requires_grad_(True)
    function(leaf).backward()
    assert leaf.grad.device == MPS
    # Two errors: rounding of values of up to about 40 in float32 over a step of 2e-2,
    # and a third derivative of about 40 times the square of the step.
    torch.testing.assert_close(leaf.grad.cpu(), _numeric(function, x), atol=5e-3, rtol=0)


def test_through_a_network():
    """An optimizer on mps makes the same steps as on the CPU."""

    def weight(device):
        torch.manual_seed(71)
        net = torch.nn.Linear(7, 5).to(device)
        inputs = torch.randn(2, 12, 7).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        segments = torch.tensor([[0, 0, 12], [1, 0, 9]], dtype=torch.int32)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            dense = k2.DenseFsaVec(net(inputs).log_softmax(-1), segments)
            loss = k2.ctc_loss(k2.ctc_graph([[1, 2], [3]], device=device), dense, reduction="sum")
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] / 2
        return net.weight

    # Ten steps of float32.
    assert_equal_on_both(weight, atol=1e-5, rtol=1e-5)


def test_a_graph_that_was_freed():
    fsas = random_fsa_vec().to("mps").requires_grad_(True)
    tot = fsas.get_tot_scores(use_double_scores=True, log_semiring=True).sum()
    tot.backward()
    with pytest.raises(RuntimeError, match="second time"):
        tot.backward()


def test_detached_scores_get_no_gradient():
    fsas = random_fsa_vec().to("mps").requires_grad_(True)
    detached = fsas.detach()
    assert not detached.requires_grad
    tot = detached.get_tot_scores(use_double_scores=True, log_semiring=True)
    assert not tot.requires_grad
    assert fsas.requires_grad


def test_no_grad():
    fsas = random_fsa_vec().to("mps").requires_grad_(True)
    with torch.no_grad():
        tot = fsas.get_tot_scores(use_double_scores=True, log_semiring=True)
    assert not tot.requires_grad


def test_moving_to_mps_is_part_of_the_graph():
    leaf = random_fsa_vec().requires_grad_(True)
    tot = leaf.to("mps").get_tot_scores(use_double_scores=True, log_semiring=True)
    tot.sum().backward()
    assert leaf.grad.device.type == "cpu"
    other = leaf.detach().requires_grad_(True)
    other.get_tot_scores(use_double_scores=True, log_semiring=True).sum().backward()
    assert torch.equal(leaf.grad, other.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    """The network runs in half precision, k2 in float32."""
    torch.manual_seed(73)
    net = torch.nn.Linear(7, 5).to("mps")
    inputs = torch.randn(1, 10, 7, device="mps")
    segments = torch.tensor([[0, 0, 10]], dtype=torch.int32)
    with torch.autocast("mps", dtype=dtype):
        output = net(inputs)
        assert output.dtype == dtype
        # autocast keeps log_softmax in float32, as on CUDA.
        log_probs = output.log_softmax(-1)
        dense = k2.DenseFsaVec(log_probs.float(), segments)
        loss = k2.ctc_loss(k2.ctc_graph([[1, 2]], device="mps"), dense)
        swoosh = k2.swoosh_l(output).sum()
        assert loss.dtype == torch.float32 and swoosh.dtype == torch.float32
    (loss + swoosh).backward()
    assert net.weight.grad.dtype == torch.float32
    assert net.weight.grad.isfinite().all()
    assert net.weight.grad.abs().sum() > 0


INDEXED = {
    "index_select": lambda src: k2.index_select(
        src, torch.tensor([0, 5, -1, 5], dtype=torch.int32, device=src.device)
    ),
    "index_and_sum": lambda src: k2.ragged.index_and_sum(
        src, k2.RaggedTensor([[0, 5], [], [5, 5, 1]], device=src.device)
    ),
}


@pytest.mark.parametrize("name", INDEXED)
def test_index_functions(name):
    def results(device):
        torch.manual_seed(79)
        src = torch.randn(6).to(device).requires_grad_(True)
        out = INDEXED[name](src)
        (out * torch.arange(1.0, len(out) + 1, device=device)).sum().backward()
        return out, src.grad

    assert_equal_on_both(results)
