"""Several Python threads use the device at once."""

import threading

import torch


def test_neither_the_queue_nor_the_gil_is_waited_for_with_the_other():
    """torch keeps the GIL while `tensor[i] = number` waits for the queue, so
    no operator may ask for the GIL in the queue.  A failure is a deadlock."""
    rounds = 300
    errors = []

    def run(body):
        try:
            for i in range(rounds):
                body(i)
        except Exception as error:
            errors.append(error)

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

    bodies = [assign, read, copy, compute] * 2
    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
