"""The cases of fuzz.py: functions of k2, and strategies of hypothesis for their arguments."""

import os

import hypothesis
import k2
import k2.ragged as k2r
import torch
from hypothesis import strategies as st

from k2_mps_tests.parity import accuracy
from k2_mps_tests.parity.helpers import EPS, Close

# The environment variable that makes k2 run an operation on the host, or in Metal, if it can run
# in both places.
FORCE = "K2_MPS_FORCE"
PLACES = ("host", "metal")


# Many scores are one of four values, so that ties are common.  Some scores are -infinity.  All
# other scores are multiples of 2^-40, so that sums are exact in float64 and in pairs of floats.
# With finer scores, two sums could be equal in float64 and different in pairs of floats.
SCORES = st.one_of(
    st.sampled_from([0.0, -0.5, 1.0, 2.0]),
    st.floats(-20, 5, width=32).map(lambda score: round(score * 2**40) / 2**40),
    st.just(float("-inf")),
)
FINITE = st.floats(-10, 5, width=32)
DTYPES = st.sampled_from([torch.int32, torch.float32])


@st.composite
def fsa(draw, max_states=8, max_symbol=4, epsilon=True):
    """Returns (number of states, list of arcs) of an acyclic FSA.

    An arc is (source, destination, label, score).  Arcs are sorted by source.  There may be states
    that no path from the start reaches, or from which no path leads to the end.
    """
    n = draw(st.integers(2, max_states))
    arcs = []
    for src in range(n - 1):
        for _ in range(draw(st.integers(0, 3))):
            dest = draw(st.integers(src + 1, n - 1))
            label = -1 if dest == n - 1 else draw(st.integers(0 if epsilon else 1, max_symbol))
            arcs.append((src, dest, label, draw(SCORES)))
    return n, arcs


def make_fsa(spec):
    """Returns a k2.Fsa on the CPU; `spec` is a result of fsa()."""
    n, arcs = spec
    if not arcs:
        return k2.Fsa.from_str("")
    # The text format cannot express an infinite score, and needs an arc to the final state.
    text = "\n".join(f"{s} {d} {label} 0" for s, d, label, _ in arcs)
    ans = k2.Fsa.from_str(f"{text}\n{n - 1}")
    if ans.num_arcs != len(arcs):
        hypothesis.reject()
    ans.scores = torch.tensor([a[3] for a in arcs])
    return ans


def fsa_vecs(**kwargs):
    return st.lists(fsa(**kwargs), min_size=1, max_size=4)


def make_fsa_vec(specs, device):
    """Returns an FsaVec on `device` with attributes of all kinds; its scores require a gradient."""
    cpu = k2.create_fsa_vec([make_fsa(spec) for spec in specs])
    ans = k2.Fsa(cpu.to(device).arcs.clone())
    n = ans.num_arcs
    ans.aux_labels = torch.where(cpu.labels == -1, -1, cpu.labels + 5).to(device)
    ans.count = torch.arange(n, dtype=torch.int32, device=device)
    ans.weight = torch.arange(n, dtype=torch.float32, device=device).requires_grad_(True)
    ans.tag = k2.RaggedTensor([[i] * (i % 3) for i in range(n)], dtype=torch.int32).to(device)
    ans.note = "text"
    return ans.requires_grad_(True)


@st.composite
def dense(draw, max_frames=7, num_symbols=5):
    """Returns a matrix of scores [frame][symbol] for each sequence, the longest sequence first."""
    sizes = sorted(draw(st.lists(st.integers(1, max_frames), min_size=1, max_size=3)), reverse=True)
    return [
        draw(
            st.lists(
                st.lists(FINITE, min_size=num_symbols, max_size=num_symbols), min_size=n, max_size=n
            )
        )
        for n in sizes
    ]


def make_dense(spec, device):
    """Returns (DenseFsaVec, the tensor of scores from which the DenseFsaVec is made)."""
    scores = torch.zeros(len(spec), len(spec[0]), len(spec[0][0]))
    for i, sequence in enumerate(spec):
        scores[i, : len(sequence)] = torch.tensor(sequence)
    leaf = scores.to(device).requires_grad_(True)
    segments = torch.tensor([[i, 0, len(s)] for i, s in enumerate(spec)], dtype=torch.int32)
    return k2.DenseFsaVec(leaf, segments), leaf


def ragged_lists(num_axes):
    lists = st.lists(st.integers(-9, 9), max_size=5)
    for _ in range(num_axes - 1):
        lists = st.lists(lists, min_size=1, max_size=4)
    return lists


# {kind: (function, strategies)}.  A function takes a device and named arguments; hypothesis draws
# the arguments from the strategies.
CASES = {}


def case(**strategies):
    """Returns a decorator that adds a function to CASES under the function's name."""

    def add(function):
        CASES[function.__name__] = function, strategies
        return function

    return add


SCORES_OF = ["get_tot_scores", "get_forward_scores", "get_backward_scores", "get_arc_post"]


@case(
    specs=fsa_vecs(),
    name=st.sampled_from(SCORES_OF),
    double=st.booleans(),
    log_semiring=st.booleans(),
    place=st.sampled_from(PLACES),
)
def scores(device, specs, name, double, log_semiring):
    fsas = make_fsa_vec(specs, device)
    # Metal computes scores in double precision, whether or not the caller asks for it.
    in_metal = os.environ.get(FORCE) == "metal"
    ans = getattr(fsas, name)(use_double_scores=double or in_metal, log_semiring=log_semiring)
    grad = torch.linspace(1, 2, ans.numel())
    if name == "get_arc_post":
        # Metal adds the gradients of an FSA in another order than the CPU.  Sums of
        # multiples of 1/64 are exact, so they are the same in any order.
        grad = (grad * 64).round() / 64
    ans.backward(grad.to(device, ans.dtype))
    ans = [ans.detach().float(), fsas.grad]
    return nearly_double(*ans) if in_metal and log_semiring else ans


def nearly_double(scores, *grads):
    """Returns each tensor as a Close, with the tolerance of Metal's double precision.

    A score may differ by one ulp, and a gradient by 1e-6 of the largest gradient.
    """
    # A score near 0 can be the difference of two scores of up to 140.  Such a score has the errors
    # of the two scores.
    return [Close(scores, 140 * 2.0**-44, EPS)] + [
        Close(grad, accuracy.MAX_GRADIENT * grad.abs().max().item() if grad.numel() else 0, 0)
        for grad in grads
    ]


def _closure(fsas):
    fsa = fsas[0]
    del fsa.tag  # k2.closure() refuses a ragged attribute.
    return k2.closure(fsa)


UNARY = {
    "connect": k2.connect,
    "arc_sort": k2.arc_sort,
    "top_sort": k2.top_sort,
    "add_epsilon_self_loops": k2.add_epsilon_self_loops,
    "remove_epsilon_self_loops": lambda f: k2.remove_epsilon_self_loops(
        k2.add_epsilon_self_loops(f)
    ),
    "reverse": k2.reverse,
    "invert": lambda f: k2.arc_sort(f).invert(),
    "shortest_path": lambda f: k2.shortest_path(f, use_double_scores=True),
    "closure": _closure,
    "union": k2.union,
    "first": lambda f: f[0],
    "index_fsa": lambda f: k2.index_fsa(
        f, torch.tensor([0, f.shape[0] - 1, 0], dtype=torch.int32, device=f.device)
    ),
    "cat": lambda f: k2.cat([f, f]),
    "convert_attr": lambda f: f.convert_attr_to_ragged_("count") or f,
    "expand": lambda f: k2.expand_ragged_attributes(f, ragged_attribute_names=["tag"]),
    "prune": lambda f: k2.prune_on_arc_post(f, 0.1, use_double_scores=True),
    "clone": lambda f: f.clone(),
}


@case(specs=fsa_vecs(), name=st.sampled_from(sorted(UNARY)))
def unary(device, specs, name):
    fsas = make_fsa_vec(specs, device)
    out = UNARY[name](fsas)
    weights = torch.linspace(1, 2, out.num_arcs).to(device)
    ((out.scores + 2 * out.weight) * weights).sum().backward()
    return out, fsas.grad, fsas.weight.grad


@case(a=fsa_vecs(), b=fsa_vecs(), index=st.integers(0, 3), sorted_match_a=st.booleans())
def intersect_device(device, a, b, index, sorted_match_a):
    a = k2.arc_sort(make_fsa_vec(a, device)).detach().requires_grad_(True)
    b = k2.arc_sort(make_fsa_vec(b, device)).detach().requires_grad_(True)
    b_to_a = torch.tensor([index % a.shape[0]] * b.shape[0], dtype=torch.int32, device=device)
    for attr in ("aux_labels", "count", "tag"):
        delattr(b, attr)
    out, *maps = k2.intersect_device(a, b, b_to_a, sorted_match_a=sorted_match_a, ret_arc_maps=True)
    out.scores.backward(torch.linspace(1, 2, out.num_arcs).to(device))
    return out, *maps, a.grad, b.grad


@case(
    graphs=fsa_vecs(epsilon=False),
    scores=dense(),
    pruned=st.booleans(),
    beam=st.floats(0.5, 20),
    place=st.sampled_from(PLACES),
)
def intersect_dense(device, graphs, scores, pruned, beam):
    graphs = (graphs * 3)[: len(scores)]
    graph = k2.arc_sort(make_fsa_vec(graphs, device)).detach()
    graph.requires_grad_(True)
    dense_fsas, leaf = make_dense(scores, device)
    names = {"seqframe_idx_name": "seqframe", "frame_idx_name": "frame"}
    if pruned:
        out = k2.intersect_dense_pruned(graph, dense_fsas, beam, beam, 2, 30, **names)
    else:
        out = k2.intersect_dense(graph, dense_fsas, beam, **names)
    tot = out.get_tot_scores(use_double_scores=True, log_semiring=True)
    tot.backward(torch.linspace(1, 2, tot.numel()).to(device, tot.dtype))
    of_tot = [tot.detach().float(), leaf.grad, graph.grad]
    return out, nearly_double(*of_tot) if os.environ.get(FORCE) == "metal" else of_tot


@case(
    targets=st.lists(st.lists(st.integers(1, 4), max_size=4), min_size=1, max_size=3),
    scores=dense(),
    reduction=st.sampled_from(["none", "sum", "mean"]),
    place=st.sampled_from(PLACES),
)
def ctc_loss(device, targets, scores, reduction):
    targets = (targets * 3)[: len(scores)]
    dense_fsas, leaf = make_dense(scores, device)
    loss = k2.ctc_loss(
        k2.ctc_graph(targets, device=device),
        dense_fsas,
        output_beam=50.0,
        reduction=reduction,
        target_lengths=torch.tensor([len(t) for t in targets], device=device),
    )
    # On the CPU, k2 adds losses in float64.  On mps, k2 rounds losses to float32 before the sum or
    # mean.
    exact = reduction == "none"
    loss.backward(torch.ones_like(loss))
    loss = loss.detach().float()
    if os.environ.get(FORCE) == "metal":
        # test_ctc.py explains the tolerance 1e-6 of gradients.  The loss is a sum of a few numbers,
        # each rounded to float32.
        return [Close(leaf.grad, 1e-6, 0), Close(loss, 1e-12, 4 * EPS)]
    return [
        leaf.grad if exact else Close(leaf.grad, 4 * EPS, 4 * EPS),
        loss if exact else Close(loss, 0, 4 * EPS),
    ]


RAGGED = {
    "clone": lambda x: x.clone(),
    "to_int": lambda x: k2.RaggedTensor(x.shape, x.values.to(torch.int32)),
    "sizes": lambda x: [x.numel(), x.dim0, *(x.tot_size(i) for i in range(x.num_axes))],
    "tolist": lambda x: x.tolist(),
    "sum": lambda x: x.sum(initial_value=3),
    "min": lambda x: x.min(initial_value=99),
    "max": lambda x: x.max(initial_value=-99),
    "argmax": lambda x: x.argmax(initial_value=-99),
    "sort": lambda x: _sorted(x),
    "sort_descending": lambda x: _sorted(x, descending=True),
    "cat0": lambda x: k2r.cat([x, x], axis=0),
    "cat1": lambda x: k2r.cat([x, x], axis=1),
    "add": lambda x: x.add(
        torch.arange(x.tot_size(x.num_axes - 2), device=x.device).to(x.dtype), 2
    ),
    "equal": lambda x: x == x.clone(),
    "remove_eq": lambda x: x.remove_values_eq(1),
    "remove_leq": lambda x: x.remove_values_leq(0),
    "remove_axis": lambda x: x.remove_axis(0),
    "arange": lambda x: x.arange(axis=0, begin=0, end=1),
    "unique": lambda x: x.unique(need_num_repeats=True, need_new2old_indexes=True),
    "index": lambda x: x.index(_indexes(x, 0, x.dim0 - 1, 0), axis=0, need_value_indexes=True),
    "index_minus_one": lambda x: x.index(_indexes(x, 0, -1), axis=0, need_value_indexes=True),
    "index_of_a_tensor": lambda x: k2r.index(
        torch.arange(10, device=x.device, dtype=torch.int32),
        k2.RaggedTensor(x.shape, x.values.abs()),
        default_value=-5,
    ),
    "index_and_sum": lambda x: k2r.index_and_sum(
        torch.arange(10, device=x.device, dtype=torch.float32),
        k2.RaggedTensor(x.shape, x.values.abs()),
    ),
    "pad": lambda x: x.pad(mode="constant", padding_value=-1),
    "pad_replicate": lambda x: x.pad(mode="replicate", padding_value=3),
    "logsumexp": lambda x: x.logsumexp(),
    "normalize": lambda x: x.normalize(use_log=True),
    "getitem": lambda x: x[0],
}


def _indexes(x, *values):
    return torch.tensor(values, dtype=torch.int32, device=x.device)


def _sorted(x, **kwargs):
    x = x.clone()
    order = x.sort_(need_new2old_indexes=True, **kwargs)
    return x, order


@case(
    lists=st.integers(2, 4).flatmap(ragged_lists),
    dtype=DTYPES,
    name=st.sampled_from(sorted(RAGGED)),
)
def ragged(device, lists, dtype, name):
    x = k2.RaggedTensor(lists, dtype=dtype).to(device)
    if dtype != torch.float32 or name not in ("sum", "logsumexp", "normalize"):
        return RAGGED[name](x)
    out = RAGGED[name](x.requires_grad_(True))
    values = out.values if isinstance(out, k2.RaggedTensor) else out
    # The result for an empty sublist is -infinity.  The gradient of such a result is set to 0.
    grad = torch.linspace(1, 2, values.numel()).to(device)
    values.backward(grad.where(values.isfinite(), torch.zeros_like(grad)))
    return out, x.grad


@case(
    src=st.lists(FINITE, min_size=1, max_size=6),
    index=st.lists(st.integers(0, 50), max_size=8),
    default=st.sampled_from([0.0, 3.0]),
)
def index(device, src, index, default):
    leaf = torch.tensor(src).to(device).requires_grad_(True)
    index = torch.tensor([i % (len(src) + 1) - 1 for i in index], dtype=torch.int32, device=device)
    out = k2.index_select(leaf, index, default)
    ans = [out.detach()]
    if index.numel() and out.requires_grad:
        out.backward(torch.linspace(1, 2, out.numel()).to(device))
        ans.append(leaf.grad)
    return ans


@st.composite
def px_and_py(draw):
    """Returns (px, py, boundary or None) as lists."""
    B, S, T = [draw(st.integers(1, n)) for n in (3, 6, 8)]
    modified = draw(st.booleans())
    value = st.one_of(st.floats(-8, 1, width=32), st.just(float("-inf")))

    def array(rows, cols):
        return [[[draw(value) for _ in range(cols)] for _ in range(rows)] for _ in range(B)]

    boundary = None
    if draw(st.booleans()):
        boundary = []
        for _ in range(B):
            s = sorted(draw(st.lists(st.integers(0, S), min_size=2, max_size=2)))
            t = sorted(draw(st.lists(st.integers(0, T), min_size=2, max_size=2)))
            boundary.append([s[0], t[0], s[1], t[1]])
    return array(S, T if modified else T + 1), array(S + 1, T), boundary


@case(arrays=px_and_py())
def mutual_information(device, arrays):
    px, py, boundary = arrays
    px = torch.tensor(px).to(device).requires_grad_(True)
    py = torch.tensor(py).to(device).requires_grad_(True)
    if boundary is not None:
        boundary = torch.tensor(boundary, device=device)
    ans = k2.mutual_information_recursion(px, py, boundary)
    ans.sum().backward()
    # Both devices compute in float32.  A path has up to 15 steps, and scores are at most 120 in
    # magnitude.  In each step, exp() and log() are off by an ulp or two.
    bound = 15 * 4 * 120 * EPS
    return [Close(x, bound, 0) for x in (ans.detach(), px.grad, py.grad)]
