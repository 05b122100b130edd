#!/usr/bin/env python3
"""Intersection and scores of CTC lattices: our kernels beside upstream's way.

Upstream's CUDA code launches kernels for each frame (MultiGraphDenseIntersect)
or each batch of states (GetForwardScores() and others): one over arcs, cub's
reduction of segments, and for states another one that puts the results where
they belong.  Posteriors of arcs have no batches: two launches, and five for
their gradient.  launch_per_step.cu does that, without what k2 does besides on
the host for each step; so it is at least as fast as upstream's.  Both run on
one NVIDIA GPU in one process, on a batch of 32 utterances of up to 500 frames.

    .venv/bin/python lattices.py prepare FOLDER     # after `make build`
    python lattices.py run FOLDER      # with the GPU, PyTorch for it and nvcc

What it says of Metal: the algorithm.  Times on Apple's GPUs differ.
"""

import json
import shutil
import sys
from pathlib import Path

from two_steps import main

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CUDA = "launch_per_step.cu"
NUM_SEQS, NUM_FRAMES, NUM_SYMBOLS, NUM_TARGETS = 32, 500, 500, 60
INTERSECT_WIDTH = 1


def prepare(folder, libdevice):
    """Fills the folder: PTX, the inputs that k2 makes on the CPU, launches."""
    sys.path.insert(0, str(ROOT))
    import numpy as np

    from k2_mps_tests.kernels import sources

    for name in ("intersect_dense", "scores", "arc_post", "double_scores"):
        sources.compile_to_ptx(name, folder / (name + ".ptx"), libdevice, "sm_90")
    arrays, sizes = _inputs()
    np.savez_compressed(folder / "inputs.npz", **arrays)
    (folder / "sizes.json").write_text(json.dumps(sizes))
    shutil.copyfile(HERE / CUDA, folder / CUDA)
    print(f"{folder}: {sizes}")


def _inputs():
    """Graphs and log-probs, and a lattice with its batches of states."""
    import k2
    import torch

    torch.manual_seed(0)
    lengths = torch.linspace(NUM_FRAMES, NUM_FRAMES * 0.6, NUM_SEQS).int()
    targets = torch.randint(1, NUM_SYMBOLS, (NUM_SEQS, NUM_TARGETS)).tolist()
    graph = k2.ctc_graph(targets)
    log_probs = (torch.randn(NUM_SEQS, NUM_FRAMES, NUM_SYMBOLS) * 2).log_softmax(-1)
    segments = torch.stack([torch.arange(NUM_SEQS), torch.zeros(NUM_SEQS), lengths], 1).int()
    dense = k2.DenseFsaVec(log_probs, segments)
    lattice = k2.intersect_dense(graph, dense, output_beam=8.0)

    a = graph.arcs
    row_splits = [a.shape().row_splits(i) for i in (1, 2)]
    arcs = a.values()
    first = row_splits[0][
        graph.arcs.shape().row_ids(1)[graph.arcs.shape().row_ids(2).long()].long()
    ]
    dests = arcs[:, 1] + first
    entering = dests.argsort(stable=True)
    entering_begins = torch.searchsorted(dests[entering], torch.arange(len(row_splits[1])))
    b_begins = dense.dense_fsa_vec.shape().row_splits(1)
    arrays = {
        "arcs": arcs,
        "state_begins": row_splits[0],
        "leaving_begins": row_splits[1],
        "entering_begins": entering_begins,
        "entering": entering,
        "b_scores": dense.scores,
        "b_begins": b_begins,
    }

    batches = lattice._get_state_batches()
    arrays["l_arcs"] = lattice.arcs.values()
    arrays["l_state_begins"] = lattice.arcs.shape().row_splits(1)
    arrays["l_src"] = lattice.arcs.shape().row_ids(2)
    arrays["l_batch_begins"] = batches.shape.row_splits(2)
    arrays["l_states"] = batches.values
    for name, ragged in (
        ("entering", lattice._get_entering_arc_batches()),
        ("leaving", lattice._get_leaving_arc_batches()),
    ):
        arrays[f"l_{name}_begins"] = ragged.shape.row_splits(3)
        arrays["l_" + name] = ragged.values
    incoming = lattice._get_incoming_arcs()
    arrays["l_fsas"] = lattice.arcs.shape().row_ids(1)
    arrays["l_out_begins"] = lattice.arcs.shape().row_splits(2)
    arrays["l_in_begins"] = incoming.shape.row_splits(2)
    arrays["l_in"] = incoming.values
    arrays["l_forward"] = lattice.get_forward_scores(False, True)
    arrays["l_backward"] = lattice.get_backward_scores(False, True)
    sizes = {
        "fsas": NUM_SEQS,
        "graph states": len(row_splits[1]) - 1,
        "graph arcs": len(arcs),
        "frames": int(lengths.max()),
        "lattice states": len(arrays["l_states"]),
        "lattice arcs": len(arrays["l_arcs"]),
        "lattice batches": batches.shape.dim0,
    }
    return {
        name: tensor.numpy().astype("f4" if tensor.is_floating_point() else "i4")
        for name, tensor in arrays.items()
    }, sizes


class Inputs:
    """The arrays of a prepared folder, on the GPU."""

    def __init__(self, folder):
        import numpy as np
        import torch

        self.sizes = json.loads((folder / "sizes.json").read_text())
        with np.load(folder / "inputs.npz") as arrays:
            for name in arrays:
                setattr(self, name, torch.from_numpy(arrays[name]).cuda())


def _intersections(inputs, ours, theirs):
    """Yields (name, our function, theirs, our result, a function that returns
    theirs, whether they must be equal to the bit)."""
    import torch

    sizes = inputs.sizes
    state_begins = inputs.state_begins.cpu()
    lengths = inputs.b_begins.diff().cpu()
    params = torch.tensor(
        [
            inputs.b_scores.shape[1],
            inputs.b_scores.shape[1],
            inputs.b_scores.numel(),
            INTERSECT_WIDTH,
        ],
        dtype=torch.int32,
        device="cuda",
    )
    map_ = torch.arange(sizes["fsas"], dtype=torch.int32, device="cuda")
    most = int(state_begins.diff().max())
    # As k2 does: of step t there are the FSAs with t frames or more.
    alive = torch.tensor([(lengths >= t).sum() for t in range(int(lengths.max()) + 1)])
    steps = torch.zeros(len(alive) + 1, dtype=torch.int64)
    steps[1:] = (2 * state_begins[alive.long()]).cumsum(0)
    scores = torch.zeros(int(steps[-1]), device="cuda")
    launch = ours.launcher(
        "intersect_dense",
        2 * sizes["fsas"],
        -(-most // 32) * 32,
        [
            inputs.arcs,
            inputs.state_begins,
            inputs.leaving_begins,
            inputs.entering_begins,
            inputs.entering,
            inputs.b_scores,
            inputs.b_begins,
            map_,
            steps.cuda(),
            scores,
            params,
        ],
    )
    other = theirs.Intersection(
        inputs.arcs,
        inputs.state_begins,
        inputs.leaving_begins,
        inputs.entering_begins,
        inputs.entering,
        inputs.b_scores,
        inputs.b_begins,
        alive.int(),
    )
    yield "intersect_dense", launch, other.run, scores, other.scores, True


def _scores(inputs, ours, theirs):
    import torch

    sizes = inputs.sizes
    fsas, batches = sizes["fsas"], sizes["lattice batches"]
    num_states, num_arcs = sizes["lattice states"], sizes["lattice arcs"]
    per_part = -(-num_states // (fsas * batches))
    threads = min(1024, -(-2 * per_part // 32) * 32)
    links = torch.zeros(2 * num_arcs, dtype=torch.int32, device="cuda")
    best = torch.zeros(num_states, dtype=torch.int32, device="cuda")

    def arguments(forward):
        name = "entering" if forward else "leaving"
        return (getattr(inputs, f"l_{name}_begins"), getattr(inputs, "l_" + name))

    def params(to_src, descending, log, has_best):
        return torch.tensor(
            [fsas, batches, num_arcs, to_src, descending, log, has_best],
            dtype=torch.int32,
            device="cuda",
        )

    def gather(order, parameters):
        return ours.launcher(
            "gather_arcs",
            -(-num_arcs // 256),
            256,
            [inputs.l_arcs, inputs.l_src, order, links, parameters],
        )

    def both(*launches):
        def run():
            for launch in launches:
                launch()

        return run

    log_scores = {}
    for forward in (True, False):
        for log in (True, False):
            begins, order = arguments(forward)
            parameters = params(forward, not forward, log, False)
            result = torch.zeros(num_states, device="cuda")
            launch = both(
                gather(order, parameters),
                ours.launcher(
                    "state_scores",
                    fsas,
                    threads,
                    [
                        inputs.l_state_begins,
                        inputs.l_batch_begins,
                        inputs.l_states,
                        begins,
                        order,
                        links,
                        result,
                        best,
                        parameters,
                    ],
                ),
            )
            other = theirs.Scores(
                inputs.l_arcs,
                inputs.l_src,
                inputs.l_state_begins,
                inputs.l_batch_begins,
                inputs.l_states,
                begins,
                order,
                fsas,
                forward,
                log,
            )
            name = "{} scores, {}".format(
                "forward" if forward else "backward", "log" if log else "tropical"
            )
            yield name, launch, other.run, result, other.scores, not log
            if log:
                log_scores[forward] = result.clone()
    for forward in (True, False):
        begins, order = arguments(not forward)
        parameters = params(not forward, forward, True, False)
        grad = torch.zeros(num_states, device="cuda")
        start = torch.zeros(num_states, device="cuda")
        ends = inputs.l_state_begins.long()
        start[ends[1:] - 1 if forward else ends[:-1]] = 1
        result = torch.zeros(num_arcs, device="cuda")
        launch = both(
            lambda grad=grad, start=start: grad.copy_(start),
            gather(order, parameters),
            ours.launcher(
                "state_scores_backprop",
                fsas,
                threads,
                [
                    inputs.l_batch_begins,
                    inputs.l_states,
                    begins,
                    order,
                    links,
                    log_scores[forward],
                    best,
                    grad,
                    result,
                    parameters,
                ],
            ),
        )
        other = theirs.Backprop(
            inputs.l_arcs,
            inputs.l_src,
            inputs.l_batch_begins,
            inputs.l_states,
            begins,
            order,
            log_scores[forward],
            start,
            fsas,
            forward,
        )
        yield (
            f"gradient of {'forward' if forward else 'backward'} scores, log",
            launch,
            other.run,
            result,
            other.grad,
            False,
        )


def _posteriors(inputs, ours, theirs):
    import torch

    sizes = inputs.sizes
    fsas, states, arcs = (sizes["fsas"], sizes["lattice states"], sizes["lattice arcs"])
    params = torch.tensor([fsas, states, arcs, 1], dtype=torch.int32, device="cuda")
    arc_grad = torch.randn(arcs, device="cuda")
    posteriors = torch.zeros(arcs, device="cuda")
    grads = torch.zeros(2, states, device="cuda")
    other = theirs.Posteriors(
        inputs.l_arcs,
        inputs.l_src,
        inputs.l_fsas,
        inputs.l_state_begins,
        inputs.l_out_begins,
        inputs.l_in_begins,
        inputs.l_in,
        inputs.l_forward,
        inputs.l_backward,
        arc_grad,
    )
    launch = ours.launcher(
        "arc_post",
        -(-arcs // 256),
        256,
        [
            inputs.l_arcs,
            inputs.l_src,
            inputs.l_fsas,
            inputs.l_state_begins,
            inputs.l_forward,
            inputs.l_backward,
            posteriors,
            params,
        ],
    )
    yield ("posteriors of arcs", launch, other.run, posteriors, other.result, True)
    threads = min(1024, -(-arcs // fsas // 32) * 32)
    launch = ours.launcher(
        "arc_post_backprop",
        fsas + -(-states // threads),
        threads,
        [
            arc_grad,
            inputs.l_fsas,
            inputs.l_state_begins,
            inputs.l_out_begins,
            inputs.l_in_begins,
            inputs.l_in,
            grads[0],
            grads[1],
            params,
        ],
    )
    yield ("gradient of posteriors", launch, other.run_backprop, grads, other.grads, False)


def _double_scores(inputs, ours, theirs):
    """Total scores and their gradient in double precision, beside upstream's
    launches for single precision: those for double take no less."""
    import torch

    sizes = inputs.sizes
    fsas, batches = sizes["fsas"], sizes["lattice batches"]
    num_states, num_arcs = sizes["lattice states"], sizes["lattice arcs"]
    threads = min(1024, -(-2 * num_states // (fsas * batches * 32)) * 32)
    params = torch.tensor(
        [fsas, batches, num_states, num_arcs, True, True, 1, 0], dtype=torch.int32, device="cuda"
    )
    begins = inputs.l_state_begins[:-1].long()
    states = torch.zeros(num_states, 4, device="cuda")
    totals = torch.zeros(fsas, device="cuda")
    nothing = torch.zeros(1, dtype=torch.int32, device="cuda")
    read = [
        inputs.l_arcs,
        inputs.l_state_begins,
        inputs.l_batch_begins,
        inputs.l_states,
        inputs.l_out_begins,
    ]
    launch = ours.launcher(
        "double_backward_scores", fsas, threads, [*read, states, totals, nothing, params]
    )
    scores = theirs.Scores(
        inputs.l_arcs,
        inputs.l_src,
        inputs.l_state_begins,
        inputs.l_batch_begins,
        inputs.l_states,
        inputs.l_leaving_begins,
        inputs.l_leaving,
        fsas,
        False,
        True,
    )
    yield (
        "total scores, double",
        launch,
        scores.run,
        totals,
        lambda: scores.scores()[begins],
        False,
    )

    start = torch.zeros(num_states, device="cuda")
    start[begins] = 1
    grad = torch.zeros(num_arcs, device="cuda")
    launch = ours.launcher(
        "double_backward_backprop",
        fsas,
        threads,
        [
            *read,
            states,
            nothing,
            torch.ones(fsas, device="cuda"),
            torch.zeros(2 * num_states, dtype=torch.int32, device="cuda"),
            grad,
            params,
        ],
    )
    backprop = theirs.Backprop(
        inputs.l_arcs,
        inputs.l_src,
        inputs.l_batch_begins,
        inputs.l_states,
        inputs.l_entering_begins,
        inputs.l_entering,
        scores.scores(),
        start,
        fsas,
        False,
    )
    yield ("gradient of total scores, double", launch, backprop.run, grad, backprop.grad, False)


def run(folder, output):
    """Measures, prints a table, writes a JSON."""
    import torch
    from ptx_module import REPEATS, WARMUPS, PtxModule, measure
    from torch.utils import cpp_extension

    inputs = Inputs(folder)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds, mean of "
        f"{REPEATS} calls after {WARMUPS}\n{inputs.sizes}"
    )
    theirs = cpp_extension.load("launch_per_step", [str(folder / CUDA)], extra_cuda_cflags=["-O3"])
    parts = (
        (_intersections, "intersect_dense"),
        (_scores, "scores"),
        (_posteriors, "arc_post"),
        (_double_scores, "double_scores"),
    )
    print(f"{'':<34} {'launch per step':>14} {'ours':>8} {'times':>6}  {'largest difference'}")
    rows = []
    for part, name in parts:
        module = PtxModule(folder / (name + ".ptx"))
        for what, ours, other, result, expected, exact in part(inputs, module, theirs):
            ours()
            other()
            torch.cuda.synchronize()
            expected = expected()
            same = result == expected  # also infinities
            difference = torch.where(same, 0, (result - expected).abs()).max().item()
            assert torch.equal(result.isinf(), expected.isinf())
            assert difference == 0 or not exact, what
            first = result.clone()
            row = {
                "what": what,
                "ours": measure(ours),
                "launch per step": measure(other),
                "difference": difference,
                "same bits again": torch.equal(first, result),
            }
            rows.append(row)
            print(
                f"{what:<34} {row['launch per step']:14.0f} {row['ours']:9.0f} "
                f"{row['launch per step'] / row['ours']:6.1f}  {difference:.1e}, "
                + ("same bits again" if row["same bits again"] else "OTHER BITS AGAIN"),
                flush=True,
            )
    parts_of_it = ("forward scores, log", "backward scores, log", "posteriors of arcs")
    ours, other = (
        sum(row[which] for row in rows if row["what"] in parts_of_it)
        for which in ("ours", "launch per step")
    )
    rows.append({"what": "Fsa.get_arc_post(), log", "ours": ours, "launch per step": other})
    print(
        f"{rows[-1]['what']:<34} {other:14.0f} {ours:9.0f} {other / ours:6.1f}  the sum of "
        f"{', '.join(parts_of_it)}"
    )
    if output is not None:
        output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(__doc__, prepare, run)
