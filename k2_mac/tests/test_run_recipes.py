"""`python -m k2_mac.run` gives a recipe for CUDA the results of the recipe changed by hand."""

import pytest
import torch

from k2_mac.tests.programs import RECIPE, ROOT, by_hand
from k2_mps_tests.running import ran

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)


def same_tensors(one, other):
    found, expected = (torch.load(path, map_location="cpu") for path in (one, other))
    assert len(found) == len(expected) > 2
    assert all(torch.equal(a, b) for a, b in zip(found, expected))
    assert found[0].isfinite()


@pytest.mark.parametrize(
    "options", [(), ("--use-fp16",), ("--world-size", 2)], ids=["float32", "float16", "two ranks"]
)
def test_an_unchanged_recipe_computes_what_the_recipe_changed_by_hand_computes(
    project, tmp_path, options
):
    results = tmp_path / "changed.pt", tmp_path / "by-hand.pt"
    recipe = ("-m", "k2_mac.run", "asr/train.py", results[0])
    told = project("recipe", RECIPE, *recipe, *options).stderr
    project("hand", by_hand(), "asr/train.py", results[1], *options)
    same_tensors(*results)
    assert told.count("there is no CUDA") == 1
    assert "asr/train.py and 3 other files use mps" in told
    assert "float32: asr/model.py:30 torch.ones\n" in told


def test_torchrun_starts_the_ranks_of_an_unchanged_recipe(project, tmp_path):
    results = tmp_path / "outside.pt", tmp_path / "inside.pt", tmp_path / "by-hand.pt"
    hook = ("-m", "k2_mac.run")
    for start, result in (((*TORCHRUN, *hook), results[0]), ((*hook, *TORCHRUN), results[1])):
        recipe = (*start, "asr/train.py", result, "--world-size", 2)
        told = project(result.stem, RECIPE, *recipe).stderr
        assert told.count("there is no CUDA") == 1
    project("hand", by_hand(), "asr/train.py", results[2], "--world-size", 2)
    same_tensors(results[0], results[2])
    same_tensors(results[1], results[2])


def test_an_example_for_cuda_trains_as_for_mps(python, tmp_path):
    start = {"cuda": ("-m", "k2_mac.run", "--quiet"), "mps": ()}
    for device, options in start.items():
        training = ("--device", device, "--steps", 3, "--held-out", 2)
        program = (ROOT / "examples/ctc.py", tmp_path / device, *training)
        result = ran(python, *options, *program, cwd=ROOT)
        assert result.returncode == 0, result.stderr
    weights = [
        torch.load(tmp_path / device / "checkpoint.pt", map_location="cpu")["model"]
        for device in start
    ]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
