"""The examples learn on the CPU and on mps, with nearly equal losses."""

import argparse
import importlib
import json
import math
import re
import sys

import pytest
import torch

from k2_mps_tests.examples.conftest import EXAMPLES

pytestmark = pytest.mark.k2

RESULT = re.compile(r"phone error rate (before|after): ([\d.]+)%")
# After this number of steps, the error rate has fallen.  By default, the examples train longer.
STEPS = {"ctc": 150, "transducer": 20}

# The largest relative difference of two loss curves.  k2 rounds the derivative of Swoosh to 8 bits
# with random numbers, which differ between mps and the CPU.  In a few runs on mps, other random
# numbers changed the losses in 150 steps of CTC by up to 5e-3, and in 20 steps of the transducer by
# up to 8e-5.  The tolerances are 2 and 7 times as large as these changes.  A Mac's GPU also rounds
# differently, so the tolerance on a Mac is larger.
TOLERANCE = {"ctc": 1e-2, "transducer": 6e-4}
if sys.platform == "darwin":
    TOLERANCE = dict.fromkeys(STEPS, 5e-2)


def losses(folder):
    found = json.loads((folder / "curve.json").read_text())["losses"]
    assert all(map(math.isfinite, found)), found  # max() of differences could drop a NaN
    return found


def error_rates(text):
    return {when: float(rate) for when, rate in RESULT.findall(text)}


@pytest.fixture(scope="module")
def trained(run, tmp_path_factory):
    """A function that trains an example once on a device, and returns its folder and its output.

    Tests that use the same training need the same xdist_group, so that they run in one process.
    """
    done = {}

    def train(name, device):
        if (name, device) not in done:
            folder = tmp_path_factory.mktemp(f"{name}-{device}")
            text = run(
                f"{name}.py", folder, "--device", device, "--steps", STEPS[name], "--held-out", 32
            )
            done[name, device] = folder, text
        return done[name, device]

    return train


@pytest.mark.xdist_group("ctc")
def test_ctc_learns_on_mps(trained):
    folder, text = trained("ctc", "mps")
    rates = error_rates(text)
    # At first the model outputs random phones, more than the utterance has.
    assert rates["before"] >= 100
    assert rates["after"] < 10


@pytest.mark.xdist_group("ctc")
def test_both_devices_learn_the_same(trained, run, tmp_path):
    cpu, mps = (trained("ctc", device)[0] for device in ("cpu", "mps"))
    plot = tmp_path / "curves.png"
    text = run("curves.py", cpu, mps, "--output", plot)
    assert plot.read_bytes().startswith(b"\x89PNG")
    differences = [abs(a - b) / a for a, b in zip(losses(cpu), losses(mps))]
    assert len(differences) == STEPS["ctc"]
    assert f"difference {max(differences):.1e}" in text
    # Before the first update, the losses are float32 sums of the same numbers, for about 60 frames.
    assert differences[0] < 60 * torch.finfo(torch.float32).eps
    assert max(differences) < TOLERANCE["ctc"]


def test_the_difference_from_a_loss_of_nan_is_nan(run, tmp_path):
    for device, curve in (("cpu", "[2, 1, 1]"), ("mps", "[2, NaN, 1]")):
        (tmp_path / device).mkdir()
        text = f'{{"device": "{device}", "losses": {curve}}}'
        (tmp_path / device / "curve.json").write_text(text)
    plot = tmp_path / "curves.png"
    text = run("curves.py", tmp_path / "cpu", tmp_path / "mps", "--output", plot)
    assert text.endswith("largest relative difference nan\n")


@pytest.mark.xdist_group("transducer")
@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_the_transducer_learns(trained, device):
    curve = losses(trained("transducer", device)[0])
    assert len(curve) == STEPS["transducer"]
    # The model first learns that most frames are blank.
    assert curve[-1] < 0.7 * curve[0]


@pytest.mark.xdist_group("transducer")
def test_both_devices_learn_the_same_transducer(trained):
    cpu, mps = (losses(trained("transducer", device)[0]) for device in ("cpu", "mps"))
    assert max(abs(a - b) / a for a, b in zip(cpu, mps)) < TOLERANCE["transducer"]


# k2.rnnt_loss_smoothed takes a mean over its whole batch. So only the loss of CTC is the sum of the
# losses of two half batches.
def test_two_processes_learn_what_one_does_with_the_whole_batch(run, tmp_path):
    curves = []
    for count in (1, 2):
        options = ["--device", "mps", "--world-size", count, "--steps", 10, "--held-out", 2]
        text = run("ctc.py", tmp_path / str(count), *options)
        assert text.count("phone error rate after") == 1
        curves.append(losses(tmp_path / str(count)))
    differences = [abs(one - two) / one for one, two in zip(*curves, strict=True)]
    assert len(differences) == 10
    # Before the first update, the losses are float32 sums of the same numbers, for about 60 frames.
    assert differences[0] < 60 * torch.finfo(torch.float32).eps
    # Later, each process has its own random numbers.  The tolerance is 10 times the largest change
    # that other random numbers have made.
    assert max(differences) < (TOLERANCE["ctc"] if sys.platform == "darwin" else 4e-4)


@pytest.mark.parametrize("name", STEPS)
def test_each_weight_of_a_model_has_a_gradient(monkeypatch, name):
    """A model can learn even if the loss does not reach some of its weights."""
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module(name)
    model = example.Model()
    example.loss_of(model, example.speech.make_batch(0, 2), done=1.0).backward()
    weights = dict(model.named_parameters())
    assert weights and [name for name, weight in weights.items() if weight.grad is None] == []


@pytest.mark.parametrize("local_rank", [None, 1])
@pytest.mark.parametrize("device, chosen", [("cpu", False), ("cuda", True), ("mps", True)])
def test_each_process_chooses_its_gpu(monkeypatch, device, chosen, local_rank):
    """Processes of one machine with CUDA would otherwise share the first GPU."""
    monkeypatch.syspath_prepend(EXAMPLES)
    processes = importlib.import_module("common.processes")
    done = []
    for name in "init_process_group", "destroy_process_group":
        monkeypatch.setattr(
            processes.distributed, name, lambda *_, name=name, **__: done.append(name)
        )
    monkeypatch.setattr(processes.gpu, "set_device", lambda index: done.append(index))
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    options = argparse.Namespace(device=torch.device(device), world_size=4)
    processes._run(3, lambda options: done.append("run"), (), options)
    number = 3 if local_rank is None else local_rank
    begun = ["init_process_group", "run", "destroy_process_group"]
    assert done == [*[number] * chosen, *begun]


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--batch", 1, "--world-size", 2], "--batch needs an utterance for each process"),
        (["--stop-after", 0], "--stop-after: must be 1 or more"),
    ],
)
def test_options_that_leave_nothing_to_train_on_are_refused(run, tmp_path, options, reason):
    assert reason in run("ctc.py", tmp_path, *options, status=2)


@pytest.mark.parametrize("name", ["ctc", "transducer"])
def test_a_resumed_run_gives_bit_for_bit_identical_weights(run, tmp_path, name):
    options = ["--steps", 6, "--batch", 4, "--save-every", 2, "--held-out", 2]
    run(f"{name}.py", tmp_path / "through", *options)
    run(f"{name}.py", tmp_path / "resumed", *options, "--stop-after", 3)
    run(f"{name}.py", tmp_path / "resumed", *options, "--resume")
    through, resumed = (
        torch.load(tmp_path / folder / "checkpoint.pt") for folder in ("through", "resumed")
    )
    assert through["losses"] == resumed["losses"]
    assert len(through["losses"]) == 6
    for weight, expected in through["model"].items():
        assert torch.equal(resumed["model"][weight], expected), weight
    moments, expected = (each["optimizer"]["state"] for each in (resumed, through))
    for number, state in expected.items():
        for key, value in state.items():
            assert torch.equal(moments[number][key], value), (number, key)


@pytest.mark.xdist_group("ctc")
def test_a_run_with_other_settings_is_not_resumed(trained, run, tmp_path):
    error = run("ctc.py", trained("ctc", "mps")[0], "--steps", 2, "--resume", status=1)
    assert "has other settings" in error
    error = run("ctc.py", tmp_path / "nowhere", "--resume", status=1)
    assert "there is no checkpoint.pt" in error


@pytest.mark.xdist_group("ctc")
@pytest.mark.parametrize("device", ["cpu", "mps"])
@pytest.mark.parametrize("graph", ["hlg", "hl"])
def test_words_are_decoded_with_a_graph(trained, run, device, graph):
    text = run("decode.py", trained("ctc", "mps")[0], "--device", device, "--graph", graph)
    rates = [float(rate) for rate in re.findall(r"word error rate, [^:]*: ([\d.]+)%", text)]
    best, n_best, oracle = rates
    # Lexicon and grammar correct most errors of the phones.
    assert best < 10
    assert n_best < 10
    assert ("intersect_dense_pruned: " in text) == (device == "mps")
    # The n-best list contains the best path, so its best entry has no more errors than this path.
    assert oracle <= best
