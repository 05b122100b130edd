"""Forward, backward and total scores and arc posteriors, with gradients.

In double precision the result on mps is that of the CPU rounded to float32
once, so it is compared for equality with that.
"""
import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import (MPS, assert_same, both,
                                         random_fsa_vec)

SEMIRINGS = pytest.mark.parametrize('log_semiring', [True, False],
                                    ids=['log', 'tropical'])
FUNCTIONS = ['get_tot_scores', 'get_forward_scores', 'get_backward_scores',
             'get_arc_post']


def _results(fsa, name, double, log_semiring, upstream=None):
    """Returns (scores, gradient of fsa.scores), both on the FSA's device."""
    ans = getattr(fsa, name)(use_double_scores=double,
                             log_semiring=log_semiring)
    if upstream is None:
        upstream = torch.ones(ans.shape)
    ans.backward(upstream.to(ans.device, ans.dtype))
    return ans.detach(), fsa.grad


@SEMIRINGS
@pytest.mark.parametrize('name', FUNCTIONS)
def test_double(name, log_semiring):
    results = [_results(fsa, name, True, log_semiring)
               for _, fsa in both(random_fsa_vec())]
    (cpu, cpu_grad), (mps, mps_grad) = results
    assert cpu.dtype == torch.float64
    assert mps.dtype == torch.float32 and mps.device == MPS
    assert_same(mps, cpu.float())
    assert_same(mps_grad, cpu_grad)


@SEMIRINGS
@pytest.mark.parametrize('name', FUNCTIONS)
def test_float(name, log_semiring, placement):
    results = [_results(fsa, name, False, log_semiring)
               for _, fsa in both(random_fsa_vec())]
    (cpu, cpu_grad), (mps, mps_grad) = results
    assert cpu.dtype == mps.dtype == torch.float32
    tolerance = {}
    if placement == 'metal' and log_semiring:
        # exp() and log() of the GPU, some 2 eps each, in paths of up to 60
        # arcs with scores of up to 60; the host runs the CPU's own code.
        tolerance = {'atol': 4 * 60 * 60 * torch.finfo(torch.float32).eps,
                     'rtol': 0}
    assert_same(mps, cpu, **tolerance)
    assert_same(mps_grad, cpu_grad, **tolerance)


@SEMIRINGS
@pytest.mark.parametrize('name', FUNCTIONS)
def test_a_gradient_of_every_element(name, log_semiring):
    fsas = random_fsa_vec()
    size = len(getattr(fsas, name)(True, log_semiring))
    # Powers of two: exact in float32, so both sides get the same gradient.
    upstream = 2.0**torch.randint(-3, 3, (size,))
    (cpu, cpu_grad), (mps, mps_grad) = [
        _results(fsa, name, True, log_semiring, upstream)
        for _, fsa in both(fsas)
    ]
    assert_same(mps, cpu.float())
    assert_same(mps_grad, cpu_grad)


@pytest.mark.parametrize('double', [True, False])
@pytest.mark.parametrize('name', FUNCTIONS)
def test_the_gradient_of_a_sum(name, double):
    """It is expanded from one number, with a stride of 0."""
    grads = []
    for device, fsa in both(random_fsa_vec(1)):
        ans = getattr(fsa, name)(use_double_scores=double, log_semiring=True)
        ans.sum().backward()
        grads.append(fsa.grad)
    assert_same(grads[1], grads[0])


def test_a_gradient_of_a_scalar_expression_through_arc_post():
    grads = []
    for _, fsa in both(random_fsa_vec()):
        post = fsa.get_arc_post(use_double_scores=True, log_semiring=True)
        (post.exp() * torch.arange(post.numel(), device=post.device)).sum(
        ).backward()
        grads.append(fsa.grad)
    # exp() is of float64 on the CPU and of float32 on mps: an error of eps
    # for each of about 100 terms of up to 500 that meet in one gradient.
    assert_same(grads[1], grads[0], atol=100 * 500 * 1.2e-7, rtol=1e-4)


def test_the_graph_can_be_used_twice():
    grads = []
    for _, fsa in both(random_fsa_vec()):
        scores = fsa.get_tot_scores(use_double_scores=True, log_semiring=True)
        scores.sum().backward(retain_graph=True)
        scores.sum().backward()
        grads.append(fsa.grad)
    assert_same(grads[1], grads[0])


def test_scores_of_one_fsa_feed_another_graph():
    grads = []
    for device in ('cpu', MPS):
        scale = torch.tensor(2.0, device=device, requires_grad=True)
        torch.manual_seed(3)
        fsa = random_fsa_vec(2).to(device)
        # A copy, since setting the scores writes to the memory of the old
        # ones, on any device.
        fsa.scores = fsa.scores.clone() * scale
        fsa.get_tot_scores(use_double_scores=True,
                           log_semiring=True).sum().backward()
        grads.append(scale.grad)
    # A sum of about 200 products in float32, in any order.
    assert_same(grads[1], grads[0], atol=1e-4, rtol=1e-5)


def test_a_long_chain_keeps_double_precision():
    """3,000 steps: in float32 the total would be off in its sixth digit."""
    steps = 3000
    lines = []
    for i in range(steps):
        lines.append(f'{i} {i + 1} 1 {0.1 + 0.01 * (i % 7)}')
        lines.append(f'{i} {i + 1} 2 {0.2 - 0.03 * (i % 5)}')
    lines.append(f'{steps} {steps + 1} -1 0')
    lines.append(str(steps + 1))
    fsa = k2.create_fsa_vec([k2.Fsa.from_str('\n'.join(lines))])
    (cpu, cpu_grad), (mps, mps_grad) = [
        _results(f, 'get_tot_scores', True, True) for _, f in both(fsa)
    ]
    assert_same(mps, cpu.float())
    assert_same(mps_grad, cpu_grad)


@SEMIRINGS
@pytest.mark.parametrize('value', [float('-inf'), float('inf'),
                                   float('nan')])
def test_scores_that_are_no_numbers(value, log_semiring):
    fsas = random_fsa_vec()
    scores = fsas.scores.clone()
    scores[3] = value
    fsas.scores = scores
    for name in FUNCTIONS:
        results = []
        for _, fsa in both(fsas):
            try:
                results.append(_results(fsa, name, True, log_semiring))
            except RuntimeError:
                # k2's check that forward scores go with the arcs that they
                # were made of refuses NaN, on any device.
                assert log_semiring and not value == float('-inf')
                results.append(None)
        cpu, mps = results
        assert (cpu is None) == (mps is None)
        if cpu is not None:
            assert_same(mps[0], cpu[0].float())
            assert_same(mps[1], cpu[1])


@pytest.mark.parametrize('double', [True, False])
def test_shortest_path(double, placement):
    paths = []
    for _, fsa in both(random_fsa_vec()):
        fsa.aux_labels = torch.arange(fsa.num_arcs, dtype=torch.int32,
                                      device=fsa.device)
        path = k2.shortest_path(fsa, use_double_scores=double)
        path.scores.sum().backward()
        paths.append((path, fsa.grad))
    (cpu, cpu_grad), (mps, mps_grad) = paths
    assert_same(mps.arcs.values(), cpu.arcs.values())
    assert_same(mps.aux_labels, cpu.aux_labels)
    assert_same(mps_grad, cpu_grad)


@pytest.mark.parametrize('double', [True, False])
def test_random_paths(double):
    paths = [k2.random_paths(fsa, use_double_scores=double, num_paths=20)
             for _, fsa in both(random_fsa_vec())]
    assert paths[1].device == MPS
    assert paths[1].tolist() == paths[0].tolist()


@pytest.mark.parametrize('double', [True, False])
def test_prune_on_arc_post(double):
    pruned = []
    for _, fsa in both(random_fsa_vec()):
        out = k2.prune_on_arc_post(fsa, 0.05, use_double_scores=double)
        out.scores.sum().backward()
        pruned.append((out, fsa.grad))
    (cpu, cpu_grad), (mps, mps_grad) = pruned
    assert 0 < cpu.num_arcs
    assert_same(mps.arcs.values(), cpu.arcs.values())
    assert_same(mps_grad, cpu_grad)
