"""Algorithms on FSAs give the same FSAs and arc maps as on the CPU."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import assert_equal, assert_equal_on_both, on_both, random_fsa_vec

# Operations on an FsaVec with attributes of every kind.
UNARY = {
    "connect": lambda f: k2.connect(f),
    "arc_sort": lambda f: k2.arc_sort(f),
    "top_sort": lambda f: k2.top_sort(f),
    "add_epsilon_self_loops": lambda f: k2.add_epsilon_self_loops(f),
    "remove_epsilon_self_loops": lambda f: k2.remove_epsilon_self_loops(
        k2.add_epsilon_self_loops(f)
    ),
    "reverse": lambda f: k2.reverse(f),
    "invert": lambda f: k2.arc_sort(f).invert(),
    "clone": lambda f: f.clone(),
    "index": lambda f: f[1],
    "index_fsa": lambda f: k2.index_fsa(
        f, torch.tensor([2, 0, 2], dtype=torch.int32, device=f.device)
    ),
    "cat": lambda f: k2.cat([f, f]),
    "closure": lambda f: k2.closure(f[0]),
    "union": lambda f: k2.union(f),
    "convert_attr": lambda f: f.convert_attr_to_ragged_("count") or f,
    "expand_ragged_attributes": lambda f: k2.expand_ragged_attributes(
        f, ragged_attribute_names=["tag"]
    ),
    "shortest_path": lambda f: k2.shortest_path(f, use_double_scores=True),
    "prune": lambda f: k2.prune_on_arc_post(f, 0.01, use_double_scores=True),
}


def _attributed(device, requires_grad=True):
    torch.manual_seed(31)
    cpu = random_fsa_vec(3, max_symbol=5)
    num_arcs = cpu.num_arcs
    count = torch.arange(num_arcs, dtype=torch.int32)
    weight = torch.randn(num_arcs)
    aux = torch.randint(1, 9, (num_arcs,), dtype=torch.int32)
    aux[cpu.labels == -1] = -1
    # .to() would keep the attributes' device.
    fsa = k2.Fsa(cpu.to(device).arcs.clone())
    fsa.aux_labels = aux.to(device)
    fsa.count = count.to(device)
    weight = weight.to(device).requires_grad_(requires_grad)
    fsa.weight = weight
    fsa.tag = k2.RaggedTensor([[i] * (i % 3) for i in range(num_arcs)], dtype=torch.int32).to(
        device
    )
    fsa.note = "text"
    fsa.requires_grad_(requires_grad)
    return fsa, weight


# Operations that refuse an FsaVec with these attributes, on all devices.
REFUSING = ("closure", "union", "convert_attr", "expand_ragged_attributes")


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    def results(device):
        fsa, weight = _attributed(device)
        try:
            out = UNARY[name](fsa)
        except (RuntimeError, AssertionError, TypeError, ValueError) as e:
            assert name in REFUSING, e
            return type(e)
        loss = out.scores.sum()
        if getattr(out, "weight", None) is not None:
            loss = loss + (out.weight * 2).sum()
        loss.backward()
        return out, fsa.grad, weight.grad

    assert_equal_on_both(results)


@pytest.mark.parametrize("function", [k2.remove_epsilon, k2.remove_epsilon_and_add_self_loops])
def test_remove_epsilon(function):
    fsas = random_fsa_vec(2, max_symbol=4)
    labels = fsas.labels.clone()
    labels[labels == 1] = 0
    fsas.labels = labels

    def results(fsa):
        out = function(fsa)
        if function is k2.remove_epsilon_and_add_self_loops:
            out = k2.remove_epsilon_self_loops(out)
        tot = k2.top_sort(k2.connect(out)).get_tot_scores(True, log_semiring=False)
        tot.sum().backward()
        return tot, fsa.grad

    # k2 has one algorithm for the CPU and one for devices, with equivalent results in the tropical
    # semiring.  An arc's score is a sum of about ten scores, in different orders.
    (cpu, cpu_grad), (mps, mps_grad) = on_both(results, fsas)
    assert_equal(mps, cpu, atol=1e-5, rtol=1e-6)
    assert_equal(mps_grad, cpu_grad)


def _levenshtein_scores(device):
    refs = k2.levenshtein_graph([[1, 2, 3], [4]], device=device)
    hyps = k2.levenshtein_graph([[1, 3], [4, 5], [6]], device=device)
    hyp_to_ref = torch.tensor([0, 1, 1], dtype=torch.int32, device=device)
    alignment = k2.levenshtein_alignment(
        refs, hyps, hyp_to_ref_map=hyp_to_ref, sorted_match_ref=True
    )
    scores = alignment.get_tot_scores(use_double_scores=False, log_semiring=False)
    assert scores.round().tolist() == [-1, -1, -1]
    return scores


def _sparse(device):
    rows = torch.tensor([0, 1, 1], dtype=torch.int32, device=device)
    cols = torch.tensor([2, 0, 1], dtype=torch.int32, device=device)
    made = k2.create_sparse(rows, cols, torch.tensor([1.0, 2.0, 3.0], device=device), (3, 3))
    assert made.device.type == device
    return made.to_dense()


def _best_matching_stats(device):
    """best_matching_stats runs on the CPU."""
    tokens = [[[4, 6, 7, 1, 8], [4, 3, 7, 1, 8], [4, 3, 2, 1, 8], [5, 6, 7, 1, 8]]]
    scores = torch.arange(20.0, device=device)
    counts = torch.tensor([1] * 10 + [0] * 10, dtype=torch.int32, device=device)
    ragged = k2.RaggedTensor(tokens, dtype=torch.int32, device=device)
    return tuple(k2.get_best_matching_stats(ragged, scores, counts, 8, 0, 10, 2))


MADE_ON_A_DEVICE = {
    "replace_fsa": lambda d: k2.replace_fsa(
        k2.linear_fsa([[7], [8, 9]], device=d), k2.linear_fsa([[100, 1], [101]], device=d), 100
    ),
    "levenshtein_scores": _levenshtein_scores,
    "create_sparse": _sparse,
    "best_matching_stats": _best_matching_stats,
    "linear_fsa": lambda d: k2.linear_fsa([[1, 2], [3]], device=d),
    "linear_fsa_one": lambda d: k2.linear_fsa([5, 6], device=d),
    "linear_fsa_ragged": lambda d: k2.linear_fsa(k2.RaggedTensor([[1, 2], [], [3]], device=d)),
    "linear_fst": lambda d: k2.linear_fst([1, 2], [3, 4]).to(d),
    "linear_fsa_with_self_loops": lambda d: k2.linear_fsa_with_self_loops(
        k2.linear_fsa([[1, 2], [3]], device=d)
    ),
    "ctc_topo": lambda d: k2.ctc_topo(4, device=d),
    "ctc_topo_modified": lambda d: k2.ctc_topo(4, modified=True, device=d),
    "ctc_graph": lambda d: k2.ctc_graph([[1, 2, 2], [3]], device=d),
    "ctc_graph_modified": lambda d: k2.ctc_graph([[1, 2, 2], [3]], modified=True, device=d),
    "ctc_graph_ragged": lambda d: k2.ctc_graph(k2.RaggedTensor([[1, 2, 2], [3]], device=d)),
    "trivial_graph": lambda d: k2.trivial_graph(4, device=d),
    "levenshtein_graph": lambda d: k2.levenshtein_graph([[1, 2], [3]], device=d),
}


@pytest.mark.parametrize("name", MADE_ON_A_DEVICE)
def test_made_on_a_device(name):
    assert_equal_on_both(MADE_ON_A_DEVICE[name])


def test_is_rand_equivalent_and_text():
    fsa, _ = _attributed("mps", requires_grad=False)
    assert k2.is_rand_equivalent(k2.Fsa(fsa.arcs), k2.arc_sort(k2.Fsa(fsa.arcs)), log_semiring=True)
    one = fsa[0]
    cpu, _ = _attributed("cpu", requires_grad=False)
    assert k2.to_str_simple(one) == k2.to_str_simple(cpu[0])
    assert "device='mps:0'" in str(one)


def test_properties():
    fsa, _ = _attributed("mps")
    cpu, _ = _attributed("cpu")
    assert fsa.properties == cpu.properties
    assert fsa.properties_str == cpu.properties_str
    assert fsa.num_arcs == cpu.num_arcs
    assert fsa.shape == cpu.shape


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
