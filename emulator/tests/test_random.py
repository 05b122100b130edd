"""Tests seeds and states of random number generators."""

import pytest
import torch

MPS = "mps"


def test_a_generator_repeats_its_numbers_from_its_state():
    generator = torch.Generator(MPS).manual_seed(5)
    assert generator.device.type == MPS
    state = generator.get_state()
    first = torch.randn(4, device=MPS, generator=generator)
    generator.set_state(state)
    assert torch.equal(first, torch.randn(4, device=MPS, generator=generator))


@pytest.mark.parametrize(
    "call",
    [
        "torch.rand(9, device=MPS)",
        "torch.normal(torch.zeros(3, 1, device=MPS), torch.ones(1, 4, device=MPS))",
        "torch.randint(5, (9,), device=MPS)",
        "torch.bernoulli(HALVES)",
        "torch.nn.functional.dropout(HALVES)",
        "torch.native_dropout(HALVES, 0.5, True)[0]",
        "torch.multinomial(HALVES, 13, replacement=True)",
        "torch.randperm(400, device=MPS)",
    ],
)
def test_the_generators_state_decides_what_is_drawn(call):
    def draw():
        return eval(call, globals(), {"HALVES": torch.full((9,), 0.5, device=MPS)})

    torch.manual_seed(7)
    earlier = draw()
    state, cpu = torch.mps.get_rng_state(), torch.get_rng_state()
    first = draw()
    assert not torch.equal(earlier, first)
    torch.manual_seed(8)
    torch.mps.set_rng_state(state)
    assert torch.equal(first, draw())
    # The numbers depend only on the seed and the offset of the generator.
    torch.mps.manual_seed(7)
    torch.mps._get_default_mps_generator().set_offset(1)
    assert torch.equal(first, draw())
    torch.set_rng_state(cpu)
    draw()
    assert torch.equal(cpu, torch.get_rng_state())


def test_the_state_has_a_macs_layout():
    generator = torch.Generator(MPS).manual_seed(2**40 + 5)
    generator.set_offset(2**33)
    words = generator.get_state().view(torch.int32).tolist()
    assert words == [1, 1, 1, 1, 1, 5, 2**8, 5, 2**8, 0, 2]
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        generator.set_state(torch.get_rng_state())
    copy = generator.clone_state()
    assert torch.equal(copy.get_state(), generator.get_state())


def test_native_dropout():
    torch.manual_seed(0)
    x = torch.ones(1000, device=MPS, requires_grad=True)
    out, mask = torch.native_dropout(x, 0.25, True)
    out.sum().backward()
    assert mask.dtype == torch.bool and 700 < mask.sum() < 800  # 3.6 standard deviations
    for got in (out, x.grad):
        torch.testing.assert_close(got, mask / 0.75)
    assert not torch.native_dropout(x, 1.0, True)[0].any()
