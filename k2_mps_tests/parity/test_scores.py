"""Forward, backward and total scores, and arc posteriors, agree between mps and the CPU.

The tests also compare gradients.  In double precision, the host's result on mps must equal the
CPU's result rounded to float32.  Metal's results have the tolerances of accuracy.py.
"""

import k2
import pytest
import torch

from k2_mps_tests.parity import accuracy
from k2_mps_tests.parity.helpers import (
    EPS,
    MPS,
    assert_equal_on_both,
    assert_same,
    both,
    is_reference_double,
    random_fsa_vec,
    wide_fsa,
)

SEMIRINGS = pytest.mark.parametrize("log_semiring", [True, False], ids=["log", "tropical"])
FUNCTIONS = ["get_tot_scores", "get_forward_scores", "get_backward_scores", "get_arc_post"]


def _results(fsa, name, double, log_semiring, upstream):
    """Returns (scores, gradient of fsa.scores), both on the FSA's device.

    upstream: a matrix, whose first column is the gradient of the scores.
    """
    ans = getattr(fsa, name)(use_double_scores=double, log_semiring=log_semiring)
    ans.backward(upstream.to(ans.device, ans.dtype)[:, 0])
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
    # A result near 0 can be a difference of scores of up to 1000.  The relative errors of scores
    # are about 2^-48 in Metal, and 2^-53 on the CPU.
    is_lost = (mps - cpu).abs() <= 1000 * 2.0**-44
    assert accuracy.ulps(mps[~is_lost], cpu[~is_lost]) <= accuracy.MAX_ULPS
    largest = cpu_grad.abs().max().item() if cpu_grad.numel() else 0
    assert_same(mps_grad, cpu_grad, rtol=0, atol=accuracy.MAX_GRADIENT * largest)


def _assert_as_cpu(fsas, name, log_semiring, placement, double=True, columns=1):
    size = len(getattr(fsas, name)(True, log_semiring))
    # A product with a power of two is exact, so both devices get the same gradient.
    upstream = 2.0 ** torch.randint(-3, 3, (size, columns))
    results = [
        _results(fsa, name, double or is_reference_double(fsa, placement), log_semiring, upstream)
        for fsa in both(fsas)
    ]
    assert results[1][0].dtype == torch.float32
    _assert_double(results, placement, log_semiring)


@SEMIRINGS
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("columns", [1, 3], ids=["contiguous", "strided"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_random_fsas(name, columns, double, log_semiring, placement):
    """If `double` is false, the host computes in float32, but Metal still in double precision."""
    _assert_as_cpu(random_fsa_vec(), name, log_semiring, placement, double, columns)


def _fsa(text):
    """Makes an FSA from k2's text format.  A score may be -inf, which k2's parser refuses."""
    fsa = k2.Fsa.from_str(text.replace("-inf", "999"))
    scores = fsa.scores.clone()
    scores[scores == 999] = float("-inf")
    fsa.scores = scores
    return fsa


ODD_FSAS = {
    "empty": [""],
    "empty_among_others": ["", "0 1 -1 0.5\n1", ""],
    "two_states": ["0 1 -1 0.25\n1"],
    "not_connected": ["0 1 1 0.1\n2 3 -1 0.2\n3"],
    "no_way_to_the_final_state": ["0 1 1 0.1\n0 2 1 0.3\n3"],
    "parallel_arcs": ["0 1 1 0.5\n0 1 1 0.5\n0 1 2 0.5\n1 2 -1 0\n2"],
    "ties": ["0 1 1 1\n0 2 2 1\n1 3 3 1\n2 3 4 1\n3 4 -1 0\n4"],
    "equal_paths": ["0 1 1 0.5\n0 1 2 0.5\n0 2 3 0.5\n1 2 4 0\n1 2 5 0\n2 3 -1 0\n3"],
    "minus_infinity": ["0 1 1 -inf\n0 1 2 1\n1 2 -1 0\n2"],
    "only_minus_infinity": ["0 1 1 -inf\n1 2 -1 0\n2"],
    "large": ["0 1 1 1e30\n0 1 2 -1e30\n1 2 -1 3e30\n2"],
}


@SEMIRINGS
@pytest.mark.parametrize("name", ODD_FSAS)
def test_odd_fsas(name, log_semiring, placement):
    fsas = k2.create_fsa_vec([_fsa(text) for text in ODD_FSAS[name]])
    for function in FUNCTIONS:
        _assert_as_cpu(fsas, function, log_semiring, placement)


def test_a_batch_of_500(placement):
    pool = [random_fsa_vec(1)[0] for _ in range(5)]
    _assert_as_cpu(k2.create_fsa_vec(pool * 100), "get_tot_scores", True, placement)


# A threadgroup has at most 1,024 threads.
@pytest.mark.parametrize(
    "width, arcs",
    [(1, 1), (5, 4), (6, 5), (31, 2), (32, 2), (33, 2), (40, 33), (1023, 2), (1024, 2), (1100, 3)],
)
@SEMIRINGS
def test_states_of_a_batch(width, arcs, log_semiring, placement):
    """Each layer is a batch of states.  The first and the last state have `width` arcs."""
    fsas = k2.create_fsa_vec([wide_fsa(width, arcs), wide_fsa(3, 2)])
    for name in FUNCTIONS:
        _assert_as_cpu(fsas, name, log_semiring, placement)


def test_a_million_arcs(placement):
    states, width = 1000, 1000
    src = torch.arange(states).repeat_interleave(width)
    arcs = torch.stack(
        [src, src + 1, torch.arange(width).repeat(states) + 1, torch.zeros_like(src)], dim=1
    ).to(torch.int32)
    arcs[:, 3] = torch.randn(len(arcs)).view(torch.int32)
    final = torch.tensor([[states, states + 1, -1, 0]], dtype=torch.int32)
    fsas = k2.create_fsa_vec([k2.Fsa(torch.cat([arcs, final]))])
    results = [_results(fsa, "get_tot_scores", True, True, torch.ones(1, 1)) for fsa in both(fsas)]
    _assert_double(results, placement)
    assert_same(results[1][0], results[0][0].float())


@SEMIRINGS
@pytest.mark.parametrize("gradient", [1e38, 1e-38, 0.0, float("inf"), float("nan")])
def test_gradients_of_any_size(gradient, log_semiring, metal):
    """The results are right for gradients of any size.

    A gradient that is not finite changes only the results of its own FSA.
    """
    fsas = random_fsa_vec(2)
    for name in ("get_tot_scores", "get_backward_scores"):
        size = len(getattr(fsas, name)(True, log_semiring))
        upstream = torch.zeros(size, 1)
        upstream[0] = gradient
        (_, cpu), (_, mps) = [
            _results(fsa, name, True, log_semiring, upstream) for fsa in both(fsas)
        ]
        assert fsas.shape[0] == 2
        if abs(gradient) < float("inf"):
            # Metal may flush numbers less than 2^-126 to 0.
            assert_same(
                mps, cpu, rtol=0, atol=2.0**-126 + accuracy.MAX_GRADIENT * cpu.abs().max().item()
            )
        else:
            # Only the first FSA gets a gradient that is not finite.  In this FSA, a product 0 * inf
            # can be NaN.
            first = fsas.arcs.shape().row_splits(2)[fsas.arcs.shape().row_splits(1)[1]]
            mps = mps.cpu()
            assert not mps[:first].isfinite().all()
            assert (mps[first:] == 0).all()


@pytest.mark.parametrize("log_semiring", [True, False])
@pytest.mark.parametrize("number", [0, 1], ids=["scores", "gradient"])
def test_the_accuracy_of_a_nan_is_wrong(metal, monkeypatch, log_semiring, number):
    right = k2.Fsa.get_tot_scores

    def wrong(fsas, use_double_scores, **options):
        ans = right(fsas, use_double_scores, **options)
        if ans.is_mps and options["log_semiring"] == log_semiring:
            if number == 0:
                return ans * float("nan")
            ans.register_hook(lambda grad: grad * float("nan"))
        return ans

    monkeypatch.setattr(k2.Fsa, "get_tot_scores", wrong)
    assert not accuracy.run(lattices=8, seed=1, max_frames=300).is_right()


def test_the_problems_of_accuracy_have_many_beams():
    generator = torch.Generator().manual_seed(1)
    beams = [accuracy.problem(generator, 30)[3] for _ in range(20)]
    assert 1 <= min(beams) < 5 and 25 < max(beams) <= 30


def test_accuracy(metal):
    """A short run of `python -m k2_mps_tests.parity.accuracy`."""
    worst = accuracy.run(lattices=48, seed=1, max_frames=300)
    assert worst.is_right(), worst


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_graph_can_be_used_twice(name, double, placement):
    """The gradient that sum() passes back is one number, expanded with a stride of 0."""
    results = []
    for fsa in both(random_fsa_vec()):
        scores = getattr(fsa, name)(double or is_reference_double(fsa, placement), True)
        scores.sum().backward(retain_graph=True)
        scores.sum().backward()
        results.append((scores.detach(), fsa.grad))
    _assert_double(results, placement)


@SEMIRINGS
def test_totals_that_are_computed_twice_have_their_own_graphs(log_semiring, placement):
    for fsa in both(random_fsa_vec()):
        first, second = (fsa.get_tot_scores(True, log_semiring) for _ in range(2))
        first.sum().backward()
        grad = fsa.grad.clone()
        second.sum().backward()
        assert torch.equal(fsa.grad, 2 * grad)


@SEMIRINGS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_that_a_backward_pass_has_freed_cannot_be_used(name, log_semiring, placement):
    for fsa in both(random_fsa_vec()):
        scores = getattr(fsa, name)(True, log_semiring)
        scores.sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            scores.sum().backward()


@SEMIRINGS
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("value", [float("-inf"), float("inf"), float("nan")])
def test_scores_that_are_not_finite(value, double, log_semiring, placement):
    fsas = random_fsa_vec()
    scores = fsas.scores.clone()
    scores[3] = value
    fsas.scores = scores
    for name in FUNCTIONS:
        upstream = torch.ones(len(getattr(fsas, name)(True, log_semiring)), 1)
        results = []
        for fsa in both(fsas):
            try:
                in_double = double or is_reference_double(fsa, placement)
                results.append(_results(fsa, name, in_double, log_semiring, upstream))
            except RuntimeError:
                # k2 checks that forward scores belong to the arcs.  On any device, this check
                # refuses NaN.
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
    """Asserts that scores and gradients agree between Metal and the CPU.

    Metal's gradient may be NaN if k2 raises an error on the CPU, or if the total score of the FSA
    is infinite.
    """
    if cpu is None:
        assert mps[1].isnan().any()
        return
    torch.testing.assert_close(
        mps[0].cpu(), cpu[0].float(), equal_nan=True, rtol=EPS, atol=1000 * 2.0**-44
    )
    cpu_gradient, mps_gradient = cpu[1], mps[1].cpu()
    assert (mps_gradient.isnan() | ~cpu_gradient.isnan()).all()
    if mps_gradient.isnan().any():
        assert cpu[0].max() == float("inf") or cpu_gradient.isnan().any()
    torch.testing.assert_close(
        mps_gradient[~mps_gradient.isnan()],
        cpu_gradient[~mps_gradient.isnan()],
        rtol=0,
        atol=accuracy.MAX_GRADIENT * cpu_gradient.nan_to_num().abs().max().item(),
    )


# {name: (an FSA, indexes of its arcs with the score -infinity, gradient of its total score)}.
# The total score is always -infinity.
CHAINS = {
    "the first arc of the path": ("0 1 1 0.5\n1 2 -1 0.25\n2", [0], [1, 1]),
    "the last arc of the path": ("0 1 1 0.5\n1 2 -1 0.25\n2", [1], [1, 1]),
    "the last of equally bad paths": (
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
        totals, grad = _results(fsa, "get_tot_scores", double, False, torch.tensor([[1.0], [3.0]]))
        first, second = grad.cpu().split(len(expected))
        assert first.tolist() == expected and totals[0] == float("-inf")
        # Only the first FSA has infinite scores.
        if infinite:
            assert second.sum() > 0


@pytest.mark.parametrize("double", [True, False])
def test_random_paths(double):
    assert_equal_on_both(
        lambda fsa: k2.random_paths(fsa, use_double_scores=double, num_paths=20), random_fsa_vec()
    )
