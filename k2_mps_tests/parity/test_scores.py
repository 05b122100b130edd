"""Forward, backward and total scores and arc posteriors, with gradients.

In double precision the host's result on mps must equal the CPU's result, rounded to
float32.  Metal's results have the tolerances of accuracy.py.
"""

import k2
import pytest
import torch

from k2_mps_tests.parity import accuracy
from k2_mps_tests.parity.helpers import MPS, assert_same, both, is_reference_double, random_fsa_vec

SEMIRINGS = pytest.mark.parametrize("log_semiring", [True, False], ids=["log", "tropical"])
FUNCTIONS = ["get_tot_scores", "get_forward_scores", "get_backward_scores", "get_arc_post"]


def _results(fsa, name, double, log_semiring, upstream=None):
    """Returns (scores, gradient of fsa.scores), both on the FSA's device."""
    ans = getattr(fsa, name)(use_double_scores=double, log_semiring=log_semiring)
    if upstream is None:
        upstream = torch.ones(ans.shape)
    ans.backward(upstream.to(ans.device, ans.dtype))
    return ans.detach(), fsa.grad


def _assert_double(results, placement, log_semiring=True):
    """Compares the results of _results() for the CPU and for mps."""
    (cpu, cpu_grad), (mps, mps_grad) = results
    if placement == "host" or not log_semiring:
        assert_same(mps, cpu.float())
        assert_same(mps_grad, cpu_grad)
        return
    assert mps.device == mps_grad.device == MPS
    mps, cpu = mps.cpu(), cpu.float()
    # A result near 0 is a difference of scores of up to 1000 with errors of about
    # 2^-48, on the CPU 2^-53.
    is_lost = (mps - cpu).abs() <= 1000 * 2.0**-44
    assert accuracy.ulps(mps[~is_lost], cpu[~is_lost]) <= accuracy.MAX_ULPS
    assert_same(
        mps_grad, cpu_grad, rtol=0, atol=accuracy.MAX_GRADIENT * cpu_grad.abs().max().item()
    )


@SEMIRINGS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_double(name, log_semiring, placement):
    results = [_results(fsa, name, True, log_semiring) for fsa in both(random_fsa_vec())]
    (cpu, _), (mps, _) = results
    assert cpu.dtype == torch.float64
    assert mps.dtype == torch.float32 and mps.device == MPS
    _assert_double(results, placement, log_semiring)


@SEMIRINGS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float(name, log_semiring, placement):
    """The host runs the CPU's own code; Metal's results are those of double."""
    results = [
        _results(fsa, name, is_reference_double(fsa, placement), log_semiring)
        for fsa in both(random_fsa_vec())
    ]
    assert results[1][0].dtype == torch.float32
    if placement == "metal":
        _assert_double(results, placement, log_semiring)
    else:
        assert_same(results[1][0], results[0][0])
        assert_same(results[1][1], results[0][1])


@SEMIRINGS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_of_every_element(name, log_semiring, placement):
    fsas = random_fsa_vec()
    size = len(getattr(fsas, name)(True, log_semiring))
    # Powers of two: exact in float32, so both sides get the same gradient.
    upstream = 2.0 ** torch.randint(-3, 3, (size,))
    _assert_double(
        [_results(fsa, name, True, log_semiring, upstream) for fsa in both(fsas)],
        placement,
        log_semiring,
    )


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_of_a_sum(name, double, monkeypatch):
    """The gradient of a sum is one number, expanded with a stride of 0."""
    placement = "metal" if double else "host"
    monkeypatch.setenv("K2_MPS_FORCE", placement)
    results = []
    for fsa in both(random_fsa_vec(3)):
        ans = getattr(fsa, name)(use_double_scores=double, log_semiring=True)
        ans.sum().backward()
        results.append((ans.detach(), fsa.grad))
    _assert_double(results, placement)


@SEMIRINGS
@pytest.mark.parametrize("gradient", [1e38, 1e-38, 0.0, float("inf"), float("nan")])
def test_gradients_of_any_size(gradient, log_semiring, monkeypatch):
    """A gradient of any size is right, and one that is not finite stays in its FSA."""
    monkeypatch.setenv("K2_MPS_FORCE", "metal")
    fsas = random_fsa_vec(2)
    for name in ("get_tot_scores", "get_backward_scores"):
        size = len(getattr(fsas, name)(True, log_semiring))
        upstream = torch.zeros(size)
        upstream[0] = gradient
        (_, cpu), (_, mps) = [
            _results(fsa, name, True, log_semiring, upstream) for fsa in both(fsas)
        ]
        assert fsas.shape[0] == 2
        if abs(gradient) < float("inf"):
            # Numbers less than 2^-126 may be flushed to 0.
            assert_same(
                mps, cpu, rtol=0, atol=2.0**-126 + accuracy.MAX_GRADIENT * cpu.abs().max().item()
            )
        else:
            # Only the first FSA's gradient is not finite; a product 0 * inf may be NaN.
            first = fsas.arcs.shape().row_splits(2)[fsas.arcs.shape().row_splits(1)[1]]
            mps = mps.cpu()
            assert not mps[:first].isfinite().all()
            assert (mps[first:] == 0).all()


def test_states_with_more_arcs_than_a_batch_has_threads(placement):
    """The first state has arcs to all others, and the last state from all others."""
    width = 3000
    lines = [f"0 {i} {i} {-0.001 * i:g}" for i in range(1, width)]
    lines += [f"{i} {width} -1 {(i % 7) - 3:g}" for i in range(1, width)]
    fsas = k2.create_fsa_vec([k2.Fsa.from_str("\n".join(lines + [str(width)]))])
    for name in FUNCTIONS:
        _assert_double([_results(fsa, name, True, True) for fsa in both(fsas)], placement)


def test_accuracy(monkeypatch):
    """A short run of `python -m k2_mps_tests.parity.accuracy`."""
    monkeypatch.setenv("K2_MPS_FORCE", "metal")
    worst = accuracy.run(lattices=48, seed=1, max_frames=300)
    assert worst.is_right(), worst


def test_a_gradient_of_a_scalar_expression_through_arc_post():
    grads = []
    for fsa in both(random_fsa_vec()):
        post = fsa.get_arc_post(use_double_scores=True, log_semiring=True)
        (post.exp() * torch.arange(post.numel(), device=post.device)).sum().backward()
        grads.append(fsa.grad)
    # exp() is in float64 on the CPU and in float32 on mps: an error of eps for each
    # of about 100 terms of up to 500 in one gradient.
    assert_same(grads[1], grads[0], atol=100 * 500 * 1.2e-7, rtol=1e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_graph_can_be_used_twice(name, placement):
    results = []
    for fsa in both(random_fsa_vec()):
        scores = getattr(fsa, name)(use_double_scores=True, log_semiring=True)
        scores.sum().backward(retain_graph=True)
        scores.sum().backward()
        results.append((scores.detach(), fsa.grad))
    _assert_double(results, placement)


def test_scores_of_one_fsa_feed_another_graph():
    grads = []
    for device in ("cpu", MPS):
        scale = torch.tensor(2.0, device=device, requires_grad=True)
        torch.manual_seed(3)
        fsa = random_fsa_vec(2).to(device)
        # A copy, because an assignment of scores overwrites the memory of the old
        # scores, on any device.
        fsa.scores = fsa.scores.clone() * scale
        fsa.get_tot_scores(use_double_scores=True, log_semiring=True).sum().backward()
        grads.append(scale.grad)
    # Sums of about 200 products in float32, in different orders.
    assert_same(grads[1], grads[0], atol=1e-4, rtol=1e-5)


def test_a_long_chain_keeps_double_precision(placement):
    """3,000 steps: in float32 the total would be off in its sixth digit."""
    steps = 3000
    lines = []
    for i in range(steps):
        lines.append(f"{i} {i + 1} 1 {0.1 + 0.01 * (i % 7)}")
        lines.append(f"{i} {i + 1} 2 {0.2 - 0.03 * (i % 5)}")
    lines.append(f"{steps} {steps + 1} -1 0")
    lines.append(str(steps + 1))
    fsa = k2.create_fsa_vec([k2.Fsa.from_str("\n".join(lines))])
    _assert_double([_results(f, "get_tot_scores", True, True) for f in both(fsa)], placement)


@SEMIRINGS
@pytest.mark.parametrize("value", [float("-inf"), float("inf"), float("nan")])
def test_scores_that_are_not_finite(value, log_semiring, placement):
    fsas = random_fsa_vec()
    scores = fsas.scores.clone()
    scores[3] = value
    fsas.scores = scores
    for name in FUNCTIONS:
        results = []
        for fsa in both(fsas):
            try:
                results.append(_results(fsa, name, True, log_semiring))
            except RuntimeError:
                # k2 checks that forward scores belong to the arcs; this check refuses
                # NaN, on any device.
                assert log_semiring and not value == float("-inf")
                results.append(None)
        cpu, mps = results
        if placement == "metal" and log_semiring:
            _assert_not_finite(cpu, mps)
            continue
        assert (cpu is None) == (mps is None)
        if cpu is not None:
            assert_same(mps[0], cpu[0].float())
            assert_same(mps[1], cpu[1])


def _assert_not_finite(cpu, mps):
    """Asserts that Metal's scores and gradients equal the CPU's.

    On mps, a gradient is NaN if the CPU refuses to compute it, or if the total score of
    its FSA is infinite.
    """
    if cpu is None:
        assert mps[1].isnan().any()
        return
    torch.testing.assert_close(
        mps[0].cpu(),
        cpu[0].float(),
        equal_nan=True,
        rtol=torch.finfo(torch.float32).eps,
        atol=1000 * 2.0**-44,
    )
    of_cpu, of_mps = cpu[1], mps[1].cpu()
    assert (of_mps.isnan() | ~of_cpu.isnan()).all()
    if of_mps.isnan().any():
        assert cpu[0].max() == float("inf") or of_cpu.isnan().any()
    torch.testing.assert_close(
        of_mps[~of_mps.isnan()],
        of_cpu[~of_mps.isnan()],
        rtol=0,
        atol=accuracy.MAX_GRADIENT * of_cpu.nan_to_num().abs().max().item(),
    )


# The arcs of an FSA, the indexes of arcs with the score -infinity, and the gradient of
# the total score, which is always -infinity.
CHAINS = {
    "the first arc of the path": ("0 1 1 0.5\n1 2 -1 0.25\n2", [0], [1, 1]),
    "the last arc of the path": ("0 1 1 0.5\n1 2 -1 0.25\n2", [1], [1, 1]),
    "of paths as bad the last": (
        "0 1 1 0.5\n0 2 1 0.5\n1 3 -1 0.5\n2 3 -1 0.25\n3",
        [1, 2, 3],
        [0, 1, 0, 1],
    ),
    "no path": ("0 3 1 0.5\n1 2 2 0.5\n2 4 -1 0.25\n4", [], [0, 0, 0]),
    "no path in the last of such arcs": ("0 1 1 0.5\n1 3 -1 0.5\n2 3 -1 0.25\n3", [0], [0, 0, 0]),
}


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_a_best_path_of_infinite_score_has_a_gradient(name, double, placement):
    text, infinite, expected = CHAINS[name]
    fsas = k2.create_fsa_vec([k2.Fsa.from_str(text)] * 2)
    scores = fsas.scores.clone()
    scores[infinite] = float("-inf")
    fsas.scores = scores
    for fsa in both(fsas):
        totals, grad = _results(fsa, "get_tot_scores", double, False, torch.tensor([1.0, 3.0]))
        first, second = grad.cpu().split(len(expected))
        assert first.tolist() == expected and totals[0] == float("-inf")
        # Only the first FSA has infinite scores.
        if infinite:
            assert second.sum() > 0


@pytest.mark.parametrize("double", [True, False])
def test_shortest_path(double, placement):
    paths = []
    for fsa in both(random_fsa_vec()):
        fsa.aux_labels = torch.arange(fsa.num_arcs, dtype=torch.int32, device=fsa.device)
        path = k2.shortest_path(fsa, use_double_scores=double)
        path.scores.sum().backward()
        paths.append((path, fsa.grad))
    (cpu, cpu_grad), (mps, mps_grad) = paths
    assert_same(mps.arcs.values(), cpu.arcs.values())
    assert_same(mps.aux_labels, cpu.aux_labels)
    assert_same(mps_grad, cpu_grad)


@pytest.mark.parametrize("double", [True, False])
def test_random_paths(double):
    paths = [
        k2.random_paths(fsa, use_double_scores=double, num_paths=20)
        for fsa in both(random_fsa_vec())
    ]
    assert paths[1].device == MPS
    assert paths[1].tolist() == paths[0].tolist()


@pytest.mark.parametrize("double", [True, False])
def test_prune_on_arc_post(double):
    pruned = []
    for fsa in both(random_fsa_vec()):
        out = k2.prune_on_arc_post(fsa, 0.05, use_double_scores=double)
        out.scores.sum().backward()
        pruned.append((out, fsa.grad))
    (cpu, cpu_grad), (mps, mps_grad) = pruned
    assert 0 < cpu.num_arcs
    assert_same(mps.arcs.values(), cpu.arcs.values())
    assert_same(mps_grad, cpu_grad)
