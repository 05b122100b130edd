"""k2.mps.explain() says where the last call of each operation ran, as its dispatches show."""

import json
import platform

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS, python, wide_fsa


def _dense(num_frames, num_seqs=8):
    log_probs = torch.randn(num_seqs, num_frames, 6).log_softmax(-1).to(MPS)
    segments = torch.tensor([[i, 0, num_frames] for i in range(num_seqs)], dtype=torch.int32)
    return k2.DenseFsaVec(log_probs, segments)


def _graphs():
    return k2.ctc_graph([[1, 2, 3, 4, 5] * 3] * 8, device=MPS)


# Each of these functions makes the inputs of a call, and returns the call.


def _intersect_dense(num_frames, order=None):
    graphs, dense = _graphs(), _dense(num_frames)
    order = order if order is None else torch.tensor(order, dtype=torch.int32, device=MPS)
    return lambda: k2.intersect_dense(graphs, dense, output_beam=5, a_to_b_map=order)


def _ctc_loss(num_frames):
    graphs, dense = _graphs(), _dense(num_frames)
    return lambda: k2.ctc_loss(graphs, dense)


def _scores_of(fsas):
    def call():
        fsas._invalidate_cache_()
        return fsas.get_tot_scores(use_double_scores=True, log_semiring=True)

    return call


def _tot_scores(num_fsas):
    return _scores_of(k2.create_fsa_vec([wide_fsa(40, 10)] * num_fsas).to(MPS))


def _no_arcs():
    return _scores_of(k2.create_fsa_vec([k2.Fsa.from_str("")]).to(MPS))


def _pruned(num_frames):
    graph, dense = k2.ctc_topo(5, device=MPS), _dense(num_frames)
    return lambda: k2.intersect_dense_pruned(graph, dense, 20.0, 8.0, 30, 10000)


CALLS = [
    ("intersect_dense", lambda: _intersect_dense(3)),
    ("intersect_dense", lambda: _intersect_dense(300)),
    ("intersect_dense", lambda: _intersect_dense(300, order=[1, 0, 2, 3, 4, 5, 6, 7])),
    ("ctc_loss", lambda: _ctc_loss(3)),
    ("ctc_loss", lambda: _ctc_loss(300)),
    ("get_tot_scores", lambda: _tot_scores(1)),
    ("get_tot_scores", lambda: _tot_scores(100)),
    ("get_tot_scores", _no_arcs),
    ("intersect_dense_pruned", lambda: _pruned(3)),
    ("intersect_dense_pruned", lambda: _pruned(1500)),
]


def _row(operation):
    rows = [row for row in k2.mps.explain().splitlines() if row.startswith(operation + ":")]
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_row_tells_what_happened(number):
    operation, make = CALLS[number]
    call = make()
    for _ in range(2):  # The first call also makes the index of a graph.
        with k2.mps.counters() as counted:
            call()
    assert (counted.dispatches > 0) == ("Metal;" in _row(operation))


def test_each_row_is_tested():
    operations = {placement.operation for placement in k2.mps.placement.placements()}
    assert operations == {operation for operation, _ in CALLS}


EXPLAIN = "import k2; print(k2.mps.explain())"
WITHOUT_MPS = "import _k2; _k2.version.with_mps = False; del _k2.mps_placements; "


def test_nothing_is_called_yet():
    *rows, _ = python("-c", EXPLAIN).stdout.splitlines()
    assert rows and all(row.endswith(": not called yet") for row in rows)


def test_a_k2_without_mps_explains_itself(tmp_path):
    # Such a k2 reads no costs, so nobody warns of them.
    (tmp_path / "costs.json").write_text("damaged")
    program = f"{WITHOUT_MPS}{EXPLAIN}; k2.mps.placement.use_saved_costs()"
    found = python("-W", "error", "-c", program, K2_MPS_COSTS=str(tmp_path / "costs.json"))
    assert (found.stdout, found.stderr) == ("This k2 was built without mps.\n", "")


@pytest.mark.parametrize("saved", [{}, {"another": {}}, {platform.node(): {}}])
def test_a_file_without_costs_of_this_machine_is_no_warning(tmp_path, saved):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(saved))
    found = python("-W", "error", "-c", EXPLAIN, K2_MPS_COSTS=str(path))
    assert found.returncode == 0, found.stderr
    assert "not from this machine" in found.stdout


def test_a_later_call_replaces_the_reason():
    _intersect_dense(300, order=[1, 0, 2, 3, 4, 5, 6, 7])()
    assert "a_to_b_map is not in ascending order" in _row("intersect_dense")
    _intersect_dense(300)()
    assert "estimated times" in _row("intersect_dense")
