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


@pytest.mark.parametrize("shape", [(0,), (1,), (1000,), (3, 5, 7)])
def test_softshrink(softshrink, shape):
    torch.manual_seed(0)
    x, gradient = torch.randn(2, *shape)
    results = []
    for device, function in (("cpu", torch.nn.functional.softshrink), ("mps", softshrink)):
        here = x.clone().to(device).requires_grad_()
        y = function(here, 0.5)
        y.backward(gradient.to(device))
        results.append((y.detach().cpu(), here.grad.cpu()))
    for expected, found in zip(*results):
        # Both sides subtract once in single precision, so bits are equal.
        assert torch.equal(expected, found)


def test_of_a_view(softshrink):
    x = torch.randn(6, 4)
    expected = torch.nn.functional.softshrink(x[1:, ::2], 0.25)
    assert torch.equal(softshrink(x.to("mps")[1:, ::2], 0.25).cpu(), expected)


def test_refusals(softshrink):
    with pytest.raises(RuntimeError, match="must be on the mps device"):
        softshrink(torch.ones(3), 0.5)
    with pytest.raises(RuntimeError, match="of float32"):
        softshrink(torch.ones(3, dtype=torch.int32, device="mps"), 0.5)
