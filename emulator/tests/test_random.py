"""Random numbers: seeds, states, and how far each operator advances the generator."""

import pytest
import torch

MPS = "mps"


def test_seeds():
    torch.manual_seed(3)
    first = torch.rand(5, device=MPS)
    torch.mps.manual_seed(3)
    assert torch.equal(first, torch.rand(5, device=MPS))
    assert not torch.equal(first, torch.rand(5, device=MPS))


def test_a_generator_of_its_own():
    generator = torch.Generator(MPS).manual_seed(5)
    assert generator.device.type == MPS
    state = generator.get_state()
    first = torch.randn(4, device=MPS, generator=generator)
    generator.set_state(state)
    assert torch.equal(first, torch.randn(4, device=MPS, generator=generator))


# {call: by how much it advances the generator's offset on a Mac}.  torch's
# kernels take 128 bits at a time, most of them for four elements.
ADVANCES = {
    "torch.rand(9, device=MPS)": 3,
    "torch.rand(0, device=MPS)": 0,
    "torch.randn(9, dtype=torch.half, device=MPS)": 3,
    "torch.normal(torch.zeros(3, 1, device=MPS), torch.ones(1, 4, device=MPS))": 3,
    "torch.randint(5, (9,), device=MPS)": 5,
    "torch.randint(5, (9,), dtype=torch.int, device=MPS)": 3,
    "HALVES.clone().exponential_()": 3,
    "torch.bernoulli(HALVES)": 9,
    "HALVES.clone().bernoulli_(0.5)": 3,
    "HALVES.clone().bernoulli_(HALVES[0])": 3,
    "torch.empty(9, device=MPS).uniform_(2, 3)": 3,
    # From torch 2.15 on, it is native_dropout.
    "torch.nn.functional.dropout(HALVES)": 9 if hasattr(torch.mps, "Stream") else 3,
    "torch.native_dropout(HALVES, 0.5, True)": 9,
    "torch.native_dropout(HALVES, 0.5, False)": 0,
    "torch._standard_gamma(HALVES)": 288,
    "torch.multinomial(HALVES, 3)": 3,
    "torch.multinomial(HALVES, 13, replacement=True)": 4,
    "torch.randperm(6, device=MPS)": 2,
    "torch.randperm(400, device=MPS)": 100,
    "torch.randperm(40000, device=MPS)": 50000,
}


@pytest.mark.parametrize("call", ADVANCES)
def test_the_state_says_what_is_drawn(call):
    def draw():
        results = eval(call, globals(), {"HALVES": torch.full((9,), 0.5, device=MPS)})
        results = results if isinstance(results, tuple) else (results,)
        return torch.cat([result.float().flatten() for result in results])

    def offset():
        return torch.mps._get_default_mps_generator().get_offset()

    torch.manual_seed(7)
    earlier = draw()
    assert offset() == ADVANCES[call]
    state, cpu = torch.mps.get_rng_state(), torch.get_rng_state()
    first = draw()
    assert torch.equal(earlier, first) == (ADVANCES[call] == 0)
    torch.manual_seed(8)
    torch.mps.set_rng_state(state)
    assert torch.equal(first, draw()) and offset() == 2 * ADVANCES[call]
    # Seed and offset are all that the numbers follow from.
    torch.mps.manual_seed(7)
    torch.mps._get_default_mps_generator().set_offset(ADVANCES[call])
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
