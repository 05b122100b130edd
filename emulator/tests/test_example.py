"""Builds examples/softshrink with torch.utils.cpp_extension, and runs it."""

import pathlib

import torch

SOURCE = pathlib.Path(__file__).parents[1] / "examples" / "softshrink"


def test_softshrink(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SOURCE)
    import softshrink

    monkeypatch.setenv("CXX", "clang++-19")
    extension = softshrink.load(str(tmp_path))
    torch.manual_seed(0)
    for x in (torch.randn(0), torch.randn(3, 5, 7), torch.randn(6, 4)[1:, ::2]):
        here = x.to("mps").requires_grad_()
        there = x.clone().requires_grad_()
        gradient = torch.randn(x.shape)
        y = softshrink.Softshrink.apply(extension, here, 0.5)
        expected = torch.nn.functional.softshrink(there, 0.5)
        y.backward(gradient.to("mps"))
        expected.backward(gradient)
        # Both implementations round only one subtraction, in float32, so the results are bit for
        # bit identical.
        assert torch.equal(y.cpu(), expected)
        assert torch.equal(here.grad.cpu(), there.grad)
