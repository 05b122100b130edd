"""Several Python threads use the device at once."""

import functools

import torch


def test_neither_the_queue_nor_the_gil_is_waited_for_with_the_other(in_threads):
    """torch keeps the GIL while `tensor[i] = number` waits for the queue.

    So no operator may take the GIL inside the queue.  A failure is a deadlock.
    """

    def assign(i):
        x = torch.zeros(4, device="mps")
        x[1] = i
        assert x.tolist() == [0, i, 0, 0]

    def read(i):
        assert torch.full((1,), i, device="mps").item() == i

    def copy(i):
        assert torch.full((2,), i, device="mps").cpu().tolist() == [i, i]

    def compute(i):
        x = torch.full((2,), i, device="mps")
        assert (x + x)[0] == 2 * i

    def repeated(body):
        for i in range(300):
            body(i)

    in_threads([functools.partial(repeated, body) for body in [assign, read, copy, compute] * 2])
