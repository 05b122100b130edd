"""Gradients on mps are mps tensors, connected to the graph."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import assert_equal_on_both, random_fsa_vec


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
