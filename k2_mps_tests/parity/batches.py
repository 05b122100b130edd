"""Checks the batches of a lattice's states and arcs by their structure, without a reference."""

import _k2
import k2
import torch

from k2_mps_tests.parity.helpers import assert_equal


def assert_batches(lattice: k2.Fsa) -> None:
    """Asserts that a kernel can add up scores batch by batch, and that the order of sums is fixed.

    The batches hold each state once.  Each arc leads from one batch to the next.  So the scores of
    a batch's states do not depend on each other.
    """
    arcs = lattice.arcs
    num_fsas, num_arcs = lattice.shape[0], lattice.num_arcs
    source_of = arcs.shape().row_ids(2).cpu().long()
    dest_of = lattice._get_dest_states().cpu().long()
    fsa_of = arcs.shape().row_ids(1).cpu().long()

    states = lattice._get_state_batches()
    order = states.values.cpu().long()
    assert torch.equal(order.sort().values, torch.arange(len(fsa_of))), "each state, once"
    # On the second axis of `states`, each batch has a row for each FSA.
    row_of = torch.empty_like(order)
    row_of[order] = states.shape.row_ids(2).cpu().long()
    assert states.shape.tot_size(1) == states.dim0 * num_fsas
    assert torch.equal(row_of % num_fsas, fsa_of)
    batch_of = row_of // num_fsas
    assert torch.equal(batch_of[dest_of], batch_of[source_of] + 1)

    for name, state_of in (("entering", dest_of), ("leaving", source_of)):
        batches = getattr(lattice, f"_get_{name}_arc_batches")()
        for axis in (1, 2):
            rows, expected = batches.shape.row_splits(axis), states.shape.row_splits(axis)
            assert torch.equal(rows, expected), f"the same batches of {name} arcs as of states"
        found = batches.values.cpu().long()
        assert torch.equal(found.sort().values, torch.arange(num_arcs)), f"each {name} arc, once"
        place_of_state = batches.shape.row_ids(3).cpu().long()
        assert torch.equal(order[place_of_state], state_of[found]), f"{name} arcs by their states"
        same_state = place_of_state[1:] == place_of_state[:-1]
        # A sum must add the arcs of a state in the order of their indexes.
        assert (found[1:] > found[:-1])[same_state].all(), f"{name} arcs of a state, in order"

    on_cpu = lattice.to("cpu").arcs
    expected = _k2.get_incoming_arcs(on_cpu, _k2.get_dest_states(on_cpu, as_idx01=True))
    assert_equal(lattice._get_incoming_arcs(), expected)
