"""benchmarks/swoosh_cost.py has the right shapes, and counts the right commands and bytes."""

from collections import Counter
from math import prod

from k2_mps_tests.benchmarks import swoosh_cost


def test_shapes_are_those_that_icefall_gave():
    """The expected shapes were recorded in a step of icefall's model on the CPU.

    The step had 2 utterances of 207 frames.
    """
    of_r, of_l = swoosh_cost.shapes_of_subsampling(2, 207)
    assert of_r == [(2, 8, 205, 80), (2, 32, 102, 39), (2, 128, 100, 19)]
    assert of_l == [(2, 384, 100, 19)]
    of_r, of_l = (Counter(shapes) for shapes in swoosh_cost.shapes_of_encoders(2, 207))
    assert of_r == {(100, 2, 192): 4, (50, 2, 256): 8, (25, 2, 384): 12, (13, 2, 512): 8}
    widths = {(100, 2): (384, 512, 640), (50, 2): (576, 768, 960)}
    widths |= {(25, 2): (768, 1024, 1280), (13, 2): (1152, 1536, 1920)}
    calls = {100: 2, 50: 4, 25: 6, 13: 4}
    assert of_l == {(*at, wide): calls[at[0]] for at in widths for wide in widths[at]}


def test_a_call_is_one_command_that_touches_each_tensor_once():
    rows = list(swoosh_cost.rows_of(1, 60))
    assert sum(calls for _, calls, *_ in rows) == 168
    assert all(calls == commands for _, calls, commands, _ in rows)
    both = [swoosh_cost.shapes_of_subsampling(1, 60), swoosh_cost.shapes_of_encoders(1, 60)]
    with_grad, without = (sum(prod(x) for some in shapes for x in some) for shapes in both)
    # With autograd, each pass moves 9 bytes an element.  Without autograd, the forward pass moves 8
    # bytes, and the backward pass 12 bytes.
    assert sum(moved for *_, moved in rows) == with_grad * (9 + 9) + without * (8 + 12)
