"""k2 on mps from several threads at once, while torch encodes in another."""
import threading

import k2
import torch

from k2_mps_tests.parity.helpers import MPS, assert_same, random_fsa_vec

ROUNDS = 20


def _loss(seed):
    """A CTC loss and its gradient on mps, by a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 15, 6, generator=generator)
    leaf = logits.to('mps').requires_grad_(True)
    segments = torch.tensor([[0, 0, 15], [1, 0, 11]], dtype=torch.int32)
    dense = k2.DenseFsaVec(leaf.log_softmax(-1), segments)
    loss = k2.ctc_loss(k2.ctc_graph([[1, 2], [3]], device='mps'), dense,
                       target_lengths=torch.tensor([2, 1]), reduction='sum')
    loss.backward()
    return loss.item(), leaf.grad.cpu()


def _run(*targets):
    """Runs functions in threads of their own; raises what they raise."""
    errors = []

    def guard(target):
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(t,)) for t in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_losses_in_threads_are_those_of_one_thread():
    seeds = range(4)
    expected = {seed: _loss(seed) for seed in seeds}

    def work(seed):
        for _ in range(ROUNDS):
            loss, grad = _loss(seed)
            assert loss == expected[seed][0]
            assert torch.equal(grad, expected[seed][1])

    _run(*[lambda seed=seed: work(seed) for seed in seeds])


def test_k2_beside_torch():
    """One thread keeps the device busy, the other asks k2 all the time."""
    done = threading.Event()
    fsas = random_fsa_vec()
    expected = fsas.get_tot_scores(use_double_scores=True, log_semiring=True)

    def torch_work():
        x = torch.ones(1000, device='mps')
        count = 0
        while not done.is_set():
            x = x * 1.0 + 1.0
            count += 1
            if count % 50 == 0:
                assert (x == count + 1).all()

    def k2_work():
        try:
            for _ in range(ROUNDS):
                scores = fsas.to('mps').get_tot_scores(use_double_scores=True,
                                                       log_semiring=True)
                assert_same(scores, expected.float())
        finally:
            done.set()

    _run(torch_work, k2_work)


def test_intersect_dense_pruned_waits_from_its_own_thread():
    """It prunes in a thread of k2, on what torch has just computed."""
    torch.manual_seed(1)
    log_probs = torch.randn(2, 90, 6)
    segments = torch.tensor([[0, 0, 90], [1, 0, 65]], dtype=torch.int32)

    def lattice(device):
        dense = k2.DenseFsaVec(log_probs.to(device).log_softmax(-1), segments)
        return k2.intersect_dense_pruned(
            k2.ctc_topo(5, device=device), dense, search_beam=8,
            output_beam=5, min_active_states=5, max_active_states=50)

    expected = lattice('cpu').arcs.values()

    def work():
        for _ in range(ROUNDS // 4):
            assert_same(lattice(MPS).arcs.values(), expected)

    _run(*[work] * 3)


def test_gradients_come_from_the_thread_of_autograd():
    """backward() runs k2 in a thread that Python did not make."""
    idents = []
    on_cpu = random_fsa_vec()
    fsas = on_cpu.to('mps').requires_grad_(True)
    scores = fsas.get_tot_scores(use_double_scores=False, log_semiring=True)
    scores.register_hook(lambda grad: idents.append(threading.get_ident()))
    scores.sum().backward()
    assert idents and idents[0] != threading.get_ident()
    on_cpu.requires_grad_(True)
    on_cpu.get_tot_scores(use_double_scores=False,
                          log_semiring=True).sum().backward()
    assert_same(fsas.grad, on_cpu.grad)
