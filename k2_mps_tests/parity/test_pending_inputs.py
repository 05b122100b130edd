"""No function reads an input that the GPU still computes, and two devices are an error."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS

INT = torch.int32


def _ints(*values):
    return torch.tensor(values, dtype=INT)


def _ragged():
    return k2.RaggedTensor([[1, 2], [], [3]], dtype=INT)


def _fsas():
    return k2.create_fsa_vec([k2.linear_fsa([1, 2]), k2.linear_fsa([3])])


def _added(index, value, size):
    ans = torch.zeros(size, dtype=value.dtype, device=value.device)
    k2.index_add(index, value, ans)
    return ans


def _with_scores(fsas, scores):
    fsas.scores = scores
    return fsas.scores + fsas.get_forward_scores(True, True)[: fsas.num_arcs] * 0


def _with_tag(function):
    """Returns a function of FSAs and an attribute that returns the attribute of the result."""

    def tag(fsas, x):
        fsas = fsas.clone()
        fsas.tag = x
        return function(fsas).tag

    return tag


def _with_self_loops(fsts, x):
    fsts = fsts.clone()
    fsts.aux_labels = x
    fsts = k2.linear_fst_with_self_loops(fsts)
    return torch.cat([fsts.labels, fsts.aux_labels.values])


# A function, and its inputs on the CPU: tensors, ragged tensors and FSAs.
CALLS = {
    "add": (lambda ragged, x: ragged.add(x, 1).values, (_ragged(), _ints(10, 20, 30))),
    "RaggedTensor.index": (
        lambda ragged, x: ragged.index(x, axis=0, need_value_indexes=True)[1],
        (_ragged(), _ints(2, 0)),
    ),
    "ragged_of_shape": (
        lambda ragged, x: k2.RaggedTensor(ragged.shape, x).values,
        (_ragged(), _ints(7, 8, 9)),
    ),
    "index_select": (k2.index_select, (torch.arange(5.0), _ints(3, 1, -1))),
    "index_add": (lambda i, x: _added(i, x, 3), (_ints(2, 0), torch.tensor([5.0, 6.0]))),
    "simple_ragged_index_select": (
        k2.simple_ragged_index_select,
        (_ints(0, 4, 5, 6), k2.RaggedTensor([[1], [], [3]], dtype=INT)),
    ),
    "ragged_index": (
        lambda x, ragged: k2.ragged.index(x, ragged).values,
        (_ints(0, 4, 5, 6), _ragged()),
    ),
    "index_and_sum": (k2.ragged.index_and_sum, (torch.arange(5.0), _ragged())),
    "index_fsa": (lambda fsas, x: k2.index_fsa(fsas, x).labels, (_fsas(), _ints(1, 0, 1))),
    "clone": (_with_tag(k2.Fsa.clone), (_fsas(), _ints(1, 2, 3, 4, 5))),
    "to": (_with_tag(lambda fsas: fsas.to("cpu")), (_fsas(), torch.arange(5.0))),
    "cat": (_with_tag(lambda fsas: k2.cat([fsas, fsas])), (_fsas(), torch.arange(5.0))),
    "linear_fst_with_self_loops": (_with_self_loops, (_fsas(), _ints(5, 6, -1, 7, -1))),
    "scores": (_with_scores, (_fsas(), torch.arange(5.0))),
    "compose_arc_maps": (k2.compose_arc_maps, (_ints(5, 6, 7), _ints(2, 0))),
}


def _pending(tensor):
    """Returns a tensor on mps with these values, which the GPU still computes."""
    ans = torch.zeros_like(tensor, device=MPS)
    other = tensor.to(MPS)
    torch.mps.synchronize()
    for _ in range(30):
        ans = ans + 1
    return ans - 30 + other


def _moved(x, is_pending):
    return _pending(x) if is_pending and isinstance(x, torch.Tensor) else x.to(MPS)


@pytest.mark.parametrize("name", CALLS)
def test_pending_inputs(name):
    function, inputs = CALLS[name]
    expected = function(*inputs).tolist()
    for index, x in enumerate(inputs):
        moved = [_moved(x, is_pending=i == index) for i, x in enumerate(inputs)]
        assert function(*moved).tolist() == expected


@pytest.mark.parametrize("name", sorted(CALLS))
def test_two_devices(name):
    function, inputs = CALLS[name]
    for index in range(2):
        mixed = [_moved(x, True) if i == index else x for i, x in enumerate(inputs)]
        with pytest.raises((RuntimeError, ValueError, AssertionError)):
            function(*mixed)


def test_add_names_both_devices():
    ragged, value = _ragged(), _ints(10, 20, 30)
    with pytest.raises(RuntimeError, match=r"\(mps:0 vs. cpu\)"):
        ragged.add(value.to(MPS), 1)
    with pytest.raises(RuntimeError, match=r"\(cpu vs. mps:0\)"):
        ragged.to(MPS).add(value, 1)
