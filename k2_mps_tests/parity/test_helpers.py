"""The comparisons of these tests notice each kind of difference between mps and the CPU."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS, Close, assert_equal

NAN = float("nan")
PAIR = torch.tensor([1.0, 2.0])
RAGGED = k2.RaggedTensor([[1, 2], [3]])


def _fsa(score=0.0, **attributes):
    fsa = k2.linear_fsa([1, 2])
    fsa.scores = torch.tensor([score, 0.0, 0.0])
    for name, value in attributes.items():
        setattr(fsa, name, value)
    return fsa


FSA = _fsa(numbers=torch.tensor([1, 2, 3]), ragged=k2.RaggedTensor([[1], [], [2]]), text="a")


@pytest.mark.parametrize(
    "result", [PAIR, PAIR.double(), torch.tensor([1.0, NAN]), RAGGED, RAGGED.shape, FSA]
)
def test_a_copy_is_equal(result):
    is_double = getattr(result, "dtype", None) == torch.float64
    assert_equal((result.float() if is_double else result).to(MPS), result)


@pytest.mark.parametrize(
    "ours, cpu",
    [
        (torch.tensor([1.0, 2.0 + 2e-7]), PAIR),
        (torch.tensor([1.0, NAN]), PAIR),
        (PAIR, torch.tensor([1.0, NAN])),
        (PAIR.int(), PAIR),
        (PAIR[:1], PAIR),
        (PAIR.clone().requires_grad_(True), PAIR),
        (k2.RaggedTensor([[1], [2, 3]]), RAGGED),
        (k2.RaggedTensor([[1, 2], [4]]), RAGGED),
        (k2.RaggedTensor([[1], [2, 3]]).shape, RAGGED.shape),
        (_fsa(score=1.0), _fsa()),
        (_fsa(text="b"), _fsa(text="a")),
        (_fsa(), _fsa(text="a")),
        (_fsa(text="a"), _fsa()),
    ],
)
def test_a_difference_is_noticed(ours, cpu):
    with pytest.raises(AssertionError):
        assert_equal(ours.to(MPS), cpu)


def test_a_result_on_the_cpu_is_noticed():
    for result in (PAIR, RAGGED.shape):
        with pytest.raises(AssertionError, match="is on cpu"):
            assert_equal(result, result)


def test_lists_of_other_lengths_differ():
    with pytest.raises(AssertionError, match="1 on the CPU, 2 on mps"):
        assert_equal([3, 4], [3])


def test_a_tolerance_is_for_its_tensor_only():
    ours = torch.tensor([1.0, 2.25], device=MPS)
    assert_equal(Close(ours, 0, 0), Close(PAIR, 0.25, 0))
    with pytest.raises(AssertionError, match=r"the result\[1\]: "):
        assert_equal([Close(ours, 0, 0), ours], [Close(PAIR, 0.25, 0), PAIR])
