"""Functions that make FSAs, combine two FSAs or determinize give the CPU's results on mps.

fuzz_cases.py covers other functions of one FsaVec.
"""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import assert_equal_on_both, random_fsa_vec


def _best_matching_stats(device):
    """Calls k2.get_best_matching_stats, which k2 runs on the CPU for any device."""
    tokens = [[[4, 6, 7, 1, 8], [4, 3, 7, 1, 8], [4, 3, 2, 1, 8], [5, 6, 7, 1, 8]]]
    scores = torch.arange(20.0, device=device)
    counts = torch.tensor([1] * 10 + [0] * 10, dtype=torch.int32, device=device)
    ragged = k2.RaggedTensor(tokens, dtype=torch.int32, device=device)
    return tuple(k2.get_best_matching_stats(ragged, scores, counts, 8, 0, 10, 2))


MADE_ON_A_DEVICE = {
    "best_matching_stats": _best_matching_stats,
    "ctc_topo": lambda d: k2.ctc_topo(4, device=d),
    "ctc_topo_modified": lambda d: k2.ctc_topo(4, modified=True, device=d),
    "ctc_graph_ragged": lambda d: k2.ctc_graph(k2.RaggedTensor([[1, 2, 2], [3]], device=d)),
    "trivial_graph": lambda d: k2.trivial_graph(4, device=d),
}


@pytest.mark.parametrize("name", MADE_ON_A_DEVICE)
def test_functions_that_make_their_result_on_a_device(name):
    assert_equal_on_both(MADE_ON_A_DEVICE[name])


@pytest.mark.parametrize("treat_epsilons_specially", [True, False])
@pytest.mark.parametrize("function", [k2.intersect, k2.compose])
def test_intersection(function, treat_epsilons_specially):
    def results(device):
        torch.manual_seed(2)
        a, b = [k2.arc_sort(random_fsa_vec(2, max_symbol=3)).to(device) for _ in range(2)]
        a.aux_labels = a.labels.clone()
        a.requires_grad_(True)
        out = function(a, b, treat_epsilons_specially=treat_epsilons_specially)
        tot = k2.top_sort(k2.connect(out)).get_tot_scores(True, log_semiring=True)
        tot.sum().backward()
        assert (tot > float("-inf")).any()
        return tot, a.grad

    # k2 has one algorithm for the CPU and another for all other devices.  The results differ in the
    # order of states and arcs, and so in the order of sums.
    assert_equal_on_both(results, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pushing", ["NoWeight", "TropicalWeight", "LogWeight"])
def test_determinize_goes_through_the_cpu(pushing):
    def determinized(device):
        text = "0 1 1 0.1\n0 2 1 0.2\n1 3 2 0.3\n2 3 2 0.4\n3 4 -1 0.5\n4"
        fsa = k2.Fsa.from_str(text).to(device)
        fsa.aux_labels = torch.tensor([5, 6, 7, 8, -1], dtype=torch.int32, device=device)
        result = k2.determinize(fsa, getattr(k2.DeterminizeWeightPushingType, f"k{pushing}Pushing"))
        assert result.num_arcs < 5
        return result

    assert_equal_on_both(determinized)
