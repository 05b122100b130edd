"""k2 on mps in copies, pickles and other processes."""

import copy
import multiprocessing
import pickle
import subprocess
import sys

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS, random_fsa_vec


@pytest.mark.parametrize(
    "make",
    [
        lambda: k2.RaggedTensor([[1, 2], [], [3]], device="mps"),
        lambda: k2.RaggedTensor([[[1.5], []], [[2.5]]], device="mps"),
    ],
)
def test_pickle(make):
    ragged = make()
    again = pickle.loads(pickle.dumps(ragged))
    assert again.device == MPS
    assert again.tolist() == ragged.tolist()
    assert again.values.data_ptr() != ragged.values.data_ptr()


def test_deepcopy_of_tensors_that_alias_an_fsa():
    fsa = random_fsa_vec().to("mps")
    scores = copy.deepcopy(fsa.scores.detach())
    fsa_scores = fsa.scores.detach().clone()
    scores += 1
    assert torch.equal(fsa.scores.detach(), fsa_scores)


class _Graphs(torch.utils.data.Dataset):
    """A data set that makes FSAs on the CPU."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        fsa = k2.linear_fsa([1 + i, 2, 3])
        return fsa.as_dict()


def _collate(batch):
    return k2.create_fsa_vec([k2.Fsa.from_dict(d) for d in batch]).as_dict()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers(context):
    """Worker processes run k2 on the CPU while their parent uses mps."""
    if context == "fork" and sys.platform == "darwin":
        pytest.skip("Metal does not survive a fork, and torch says so")
    before = random_fsa_vec(1).to("mps")
    before.get_tot_scores(use_double_scores=True, log_semiring=True)
    loader = torch.utils.data.DataLoader(
        _Graphs(), batch_size=2, num_workers=2, collate_fn=_collate, multiprocessing_context=context
    )
    total = 0
    for data in loader:
        fsas = k2.Fsa.from_dict(data).to("mps")
        assert fsas.shape[0] == 2
        scores = fsas.get_tot_scores(use_double_scores=True, log_semiring=True)
        assert (scores == 0).all()
        total += fsas.shape[0]
    assert total == 6


def _on_mps(queue):
    fsas = random_fsa_vec(2).to("mps")
    scores = fsas.get_tot_scores(use_double_scores=True, log_semiring=True)
    queue.put((scores.tolist(), str(scores.device)))


def test_mps_in_a_process_of_its_own():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_on_mps, args=(queue,))
    process.start()
    scores, device = queue.get(timeout=120)
    process.join()
    assert process.exitcode == 0
    assert device == "mps:0" and len(scores) == 2


def test_leaving_python_with_objects_alive():
    """An interpreter that ends while k2 holds mps memory does not crash."""
    code = (
        "import k2, torch\n"
        'f = k2.linear_fsa([[1, 2], [3]], device="mps")\n'
        "f.requires_grad_(True)\n"
        "t = f.get_tot_scores(True, True)\n"
        'r = k2.RaggedTensor([[1, 2]], device="mps")\n'
        'x = torch.ones(5, device="mps") + 1\n'
        'print("done")\n'
    )
    result = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "done\n"
