"""The example of examples/softshrink, built by torch's own tool and run."""

import pathlib

import pytest
import torch

SOURCE = pathlib.Path(__file__).parents[1] / "examples" / "softshrink"


@pytest.fixture(scope="module")
def softshrink(tmp_path_factory):
    folder = tmp_path_factory.mktemp("softshrink")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SOURCE)
        import softshrink as example

        patch.setenv("CXX", "clang++-19")
        extension = example.load(str(folder))

    def apply(x, threshold):
        return example.Softshrink.apply(extension, x, threshold)

    return apply


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(0,), (1,), (1000,), (3, 5, 7)])
def test_softshrink(softshrink, shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    gradient = torch.randn(shape).to(dtype)
    results = []
    for device in ("cpu", "mps"):
        here = x.clone().to(device).requires_grad_()
        if device == "cpu":
            y = torch.nn.functional.softshrink(here, 0.5)
        else:
            y = softshrink(here, 0.5)
        y.backward(gradient.to(device))
        results.append((y.detach().cpu(), here.grad.cpu()))
    for expected, found in zip(*results):
        # Both sides subtract once in single precision for every type, so bits are equal.
        assert torch.equal(expected, found)


def test_of_a_view(softshrink):
    x = torch.randn(6, 4)
    expected = torch.nn.functional.softshrink(x[1:, ::2], 0.25)
    assert torch.equal(softshrink(x.to("mps")[1:, ::2], 0.25).cpu(), expected)


def test_refusals(softshrink):
    with pytest.raises(RuntimeError, match="must be on the mps device"):
        softshrink(torch.ones(3), 0.5)
    with pytest.raises(RuntimeError, match="float32 or float16"):
        softshrink(torch.ones(3, dtype=torch.int32, device="mps"), 0.5)
