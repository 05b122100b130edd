"""OnlineDenseIntersecter gives bit for bit identical lattices in Metal and on the CPU.

After each chunk, the tests compare states, arcs, the order of both, scores, attributes and
properties.
"""

import random

import _k2
import k2
import pytest
import torch

from k2_mps_tests.parity import waits
from k2_mps_tests.parity.helpers import MPS, assert_equal
from k2_mps_tests.parity.problems import KINDS, bush, loops, pick, random_graphs, random_scores

pytestmark = pytest.mark.usefixtures("metal")


class _OnGpu:
    """Replaces OnlineDenseIntersecter.gpu_decoder; gives each stream `groups` threadgroups.

    If `groups` is 0, k2 chooses the number.
    """

    def __init__(self, on_gpu, groups):
        self.on_gpu, self.groups = on_gpu, groups
        self.to_host = on_gpu.to_host

    def decode(self, *arguments):
        return self.on_gpu.decode(*arguments, self.groups)


class Streams:
    """An OnlineDenseIntersecter on each device, with the same streams.

    Attributes:
      on_gpu: whether all streams of the last call are on the GPU.
    """

    def __init__(self, graph, num_streams, *options, groups=0):
        self.intersecters = [
            k2.OnlineDenseIntersecter(graph.to(device), num_streams, *options)
            for device in ("cpu", MPS)
        ]
        mps = self.intersecters[1]
        mps.gpu_decoder = _OnGpu(mps.gpu_decoder, groups)
        self.states = {}
        self.on_gpu = None

    def decode(self, log_probs, lengths):
        """Decodes a chunk of some streams, compares the lattices and returns mps's lattice.

        Args:
          lengths: {name of a stream: number of frames}, in the order of the rows of `log_probs`.
        """
        segments = torch.tensor([[i, 0, n] for i, n in enumerate(lengths.values())])
        before = [self.states.get(name, (None, None)) for name in lengths]
        results = []
        for which, intersecter in enumerate(self.intersecters):
            dense = k2.DenseFsaVec(log_probs.to(intersecter.device), segments.int())
            states = [state[which] for state in before]
            results.append(intersecter.decode(dense, states))
        (cpu, cpu_states), (mps, mps_states) = results
        assert_equal(mps, cpu)
        assert _k2.get_fsa_vec_basic_properties(mps.arcs) == cpu.properties
        self.states.update(zip(lengths, zip(cpu_states, mps_states)))
        self.on_gpu = all(isinstance(state, _k2.MpsPrunedStream) for state in mps_states)
        return mps


def _random_chunks(seed, groups=0):
    """Decodes random chunks of streams, and compares the lattices.

    Between chunks, some streams end and others begin.
    """
    torch.manual_seed(seed)
    rng = random.Random(seed)
    num_symbols, num_streams = pick(2, 4, 9, 40), pick(1, 2, 4)
    graph = random_graphs(pick(*KINDS), num_symbols, 1)
    graph.tag = torch.arange(graph.num_arcs, dtype=torch.int32) + 1
    min_active = pick(0, 2, 9)
    beams = pick(2.0, 6.3, 20.0), pick(0.5, 4.0, 8.1)
    options = *beams, min_active, min_active + pick(3, 20, 1000), pick(False, True)
    streams = Streams(graph, num_streams, *options, groups=groups)
    names = rng.sample("abcdefgh", num_streams)
    most = pick(1, 2, 5, 33)
    for _ in range(pick(3, 9)):
        if rng.random() < 0.3:
            names[rng.randrange(num_streams)] = str(rng.random())
        some = rng.sample(names, rng.randint(1, num_streams))
        lengths = {name: rng.choice([0, 1, most, rng.randint(0, most)]) for name in some}
        scale = pick(0, 0.5, 2, 20)
        log_probs, _ = random_scores(len(some), max(*lengths.values(), 1), num_symbols, scale)
        if rng.random() < 0.2:
            log_probs[torch.rand_like(log_probs) < 0.1] = float("-inf")
        streams.decode(log_probs, lengths)
        assert streams.on_gpu


@pytest.mark.parametrize("seed", range(60))
def test_any_chunks(seed):
    _random_chunks(seed)


@pytest.mark.parametrize("seed", range(60, 90))
def test_several_threadgroups_for_a_stream(seed):
    _random_chunks(seed, groups=2 + seed % 2)


def _topo_streams(num_streams=2, beams=(8.0, 4.0), active=(2, 20)):
    return Streams(k2.create_fsa_vec([k2.ctc_topo(5)]), num_streams, *beams, *active)


def _log_probs(num_streams, num_frames=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_streams, num_frames, 6, generator=generator).log_softmax(-1)


def test_attributes_of_two_axes_follow_the_arcs():
    graph = k2.create_fsa_vec([k2.ctc_topo(5)])
    graph.pairs = torch.arange(2.0 * graph.num_arcs).view(-1, 2)
    graph.words = k2.RaggedTensor([[arc] * (arc % 3) for arc in range(graph.num_arcs)])
    streams = Streams(graph, 2, 8.0, 4.0, 2, 20)
    lattice = streams.decode(_log_probs(2), {"a": 4, "b": 3})
    assert streams.on_gpu
    assert lattice.pairs.shape == (lattice.num_arcs, 2)


def test_the_filler_is_for_attributes_of_one_axis():
    graph = k2.Fsa.from_str("0 1 1 0\n1 2 2 0\n2 3 -1 0\n3")
    graph.pairs, graph.pairs_filler = torch.ones(3, 2), 7.0
    graph.single, graph.single_filler = torch.ones(3), 7.0
    streams = Streams(k2.create_fsa_vec([graph]), 1, 8.0, 4.0, 2, 20, True)
    # One frame ends the sequence at a label other than -1, so no arc of the graph is in the map.
    lattice = streams.decode(_log_probs(1), {"a": 1})
    assert streams.on_gpu
    assert (lattice.single == 7).any() and not (lattice.pairs == 7).any()


def test_a_stream_may_begin_with_an_empty_state():
    streams = _topo_streams()
    streams.states = {name: (k2.DecodeStateInfo(), k2.DecodeStateInfo()) for name in "ab"}
    streams.decode(_log_probs(2), {"a": 4, "b": 3})
    assert streams.on_gpu


def test_a_stream_goes_on_twice_from_the_same_chunk():
    streams = _topo_streams()
    for seed in range(4):
        streams.decode(_log_probs(1, seed=seed), {"a": 4})
    streams.states["b"] = streams.states["a"]
    for seed in range(4):
        streams.decode(_log_probs(1, seed=9 + seed), {"a": 4})
        streams.decode(_log_probs(2, seed=99 + seed), {"b": 3, "a": 1})
    assert streams.on_gpu


def test_a_history_with_many_more_states_gets_more_memory():
    """First many arcs enter a state, and then one.  So memory for arcs is left."""
    parallel = "\n".join(["0 0 2 0"] * 300)
    graph = k2.Fsa.from_str(f"{parallel}\n0 1 1 0\n1 1 1 0\n1 2 -1 0\n2")
    streams = Streams(k2.create_fsa_vec([graph]), 1, 8.0, 4.0, 2, 20)
    for label, num_frames in [(2, 20), (1, 600), (1, 600), (1, 4)]:
        log_probs = torch.full((1, num_frames, 3), -50.0)
        log_probs[:, :, label] = 0
        streams.decode(log_probs, {"a": num_frames})
        assert streams.on_gpu


def test_a_chunk_keeps_its_budget():
    streams = _topo_streams()
    lengths = {"a": 4, "b": 2}
    for seed in range(6):
        streams.decode(_log_probs(2, seed=seed), lengths)
        dense = k2.DenseFsaVec(
            _log_probs(2).to(MPS), torch.tensor([[0, 0, 4], [1, 0, 2]], dtype=torch.int32)
        )
        states = [streams.states[name][1] for name in lengths]
        found, counted = waits.counted(lambda: streams.intersecters[1].decode(dense, states))
        assert (found, counted.dispatches) == (1, 3 * 2 + 2)


def test_a_long_history_takes_no_more_dispatches():
    streams = _topo_streams(1)
    counts = []
    for seed in range(40):
        before = streams.states.get("a", (None, None))[1]
        streams.decode(_log_probs(1, seed=seed), {"a": 4})
        dense = k2.DenseFsaVec(_log_probs(1).to(MPS), torch.tensor([[0, 0, 4]], dtype=torch.int32))
        with k2.mps.counters() as counted:
            streams.intersecters[1].decode(dense, [before])
        counts.append(counted.dispatches)
    assert counts[1:] == counts[1:2] * 39


@pytest.mark.parametrize(
    "num_seqs, num_states, error", [(2, 1, "2 vs. 1"), (1, 2, "1 vs. 2"), (3, 3, "2 vs. 3")]
)
def test_a_wrong_number_of_streams_is_refused(num_seqs, num_states, error):
    intersecter = _topo_streams(num_streams=2).intersecters[1]
    segments = torch.tensor([[i, 0, 4] for i in range(num_seqs)], dtype=torch.int32)
    dense = k2.DenseFsaVec(_log_probs(num_seqs).to(MPS), segments)
    with pytest.raises(RuntimeError, match=error):
        intersecter.decode(dense, [None] * num_states)


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_the_host_goes_on_after_scores_that_are_not_numbers(score):
    streams = _topo_streams()
    lengths = {"a": 4, "b": 2}
    for seed in range(4):
        streams.decode(_log_probs(2, seed=seed), lengths)
    log_probs = _log_probs(2)
    log_probs[0, 1, 2] = score
    streams.decode(log_probs, lengths)
    assert not streams.on_gpu
    assert "are infinite, NaN" in k2.mps.explain()
    for seed in range(3):
        streams.decode(_log_probs(2, seed=seed), lengths)
    # The kernels stopped within the chunk, but other streams begin with empty tables.
    for seed in range(3):
        streams.decode(_log_probs(2, seed=seed), {"c": 4, "d": 3})
        assert streams.on_gpu


def test_the_host_goes_on_if_the_number_of_symbols_changes():
    streams = _topo_streams(num_streams=1)
    streams.decode(_log_probs(1), {"a": 4})
    assert streams.on_gpu
    # The graph has no arc with the last of these symbols.
    streams.decode(torch.nn.functional.pad(_log_probs(1, seed=1), (0, 1)), {"a": 4})
    assert not streams.on_gpu


def test_the_host_keeps_streams_that_it_began(monkeypatch):
    streams = _topo_streams()
    monkeypatch.setenv("K2_MPS_FORCE", "host")
    streams.decode(_log_probs(2), {"a": 4, "b": 2})
    assert not streams.on_gpu
    monkeypatch.setenv("K2_MPS_FORCE", "metal")
    streams.decode(_log_probs(2), {"a": 4, "b": 2})
    assert not streams.on_gpu
    streams.decode(_log_probs(1), {"c": 4})
    assert streams.on_gpu
    # If one stream of a call is on the host, the host decodes all streams of the call.
    streams.decode(_log_probs(2), {"c": 4, "a": 2})
    assert not streams.on_gpu


def test_a_lattice_has_more_states_than_estimated():
    streams = Streams(loops(300), 1, 8.0, 8.0, 2, 1000)
    streams.decode(_log_probs(1, 65), {"a": 65})
    assert streams.on_gpu


def test_too_little_memory_is_known_to_the_next_chunk():
    """Here, far more states than max_active stay active, which k2 allows.

    So the first chunk must allocate memory again.
    """
    streams = Streams(bush(300), 1, 100.0, 100.0, 0, 1)
    dense = k2.DenseFsaVec(_log_probs(1, 9).to(MPS), torch.tensor([[0, 0, 9]], dtype=torch.int32))
    found = []
    for _ in range(2):
        found.append(waits.counted(lambda: streams.intersecters[1].decode(dense, [None]))[0])
    assert found[0] > 1 and found[1] == 1
    for seed in range(3):
        streams.decode(_log_probs(1, 9, seed), {"a": 9})
    assert streams.on_gpu
