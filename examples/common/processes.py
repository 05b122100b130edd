"""Training in several processes, each of which has a share of every batch.

All processes are on one machine, or torchrun starts them on several machines.
"""

import argparse
import os
import socket
from collections.abc import Callable

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from common.speech import Batch
from k2_mac import gpu


def count(text: str) -> int:
    """Reads a number of 1 or more from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def add_world_size(parser: argparse.ArgumentParser) -> None:
    """Adds the option --world-size."""
    parser.add_argument(
        "--world-size", type=count, default=1, help="processes, each with a share of every batch"
    )


def start(run: Callable, arguments: tuple, options: argparse.Namespace) -> None:
    """Calls `run` with `arguments` and the options, in each of the processes."""
    if options.world_size == 1:
        run(*arguments, options)
        return
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", str(_free_port()))
    gpu.spawn(_run, (run, arguments, options), nprocs=options.world_size)


def rank() -> int:
    """Returns the number of this process, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def share(batch: Batch) -> tuple[Batch, float]:
    """Returns the share of this process in a batch, and the weight of the share's loss.

    Each process multiplies the loss per phone of its share by this weight.  The mean of the
    products over all processes is the loss per phone of the whole batch.
    """
    if not distributed.is_initialized():
        return batch, 1.0
    world_size = distributed.get_world_size()
    chosen = slice(rank(), None, world_size)
    num_frames = batch.num_frames[chosen]
    features = batch.features[chosen, : num_frames.max()]
    result = Batch(features, num_frames, batch.words[chosen], batch.phones[chosen])
    return result, world_size * _num_phones(result) / _num_phones(batch)


def _num_phones(batch: Batch) -> int:
    return sum(map(len, batch.phones))


def parallel(model: nn.Module, loss_of: Callable) -> Callable:
    """Returns a function that calls `loss_of` for the model.

    The backward pass of the loss averages the gradients over all processes.
    """
    loss = _Loss(model, loss_of)
    return DistributedDataParallel(loss) if distributed.is_initialized() else loss


def mean(value: torch.Tensor) -> float:
    """Returns the mean of a number over all processes."""
    if distributed.is_initialized():
        value = value.detach() / distributed.get_world_size()
        distributed.all_reduce(value)
    return value.item()


class _Loss(nn.Module):
    def __init__(self, model: nn.Module, loss_of: Callable):
        super().__init__()
        self.model = model
        self.loss_of = loss_of

    def forward(self, *arguments) -> torch.Tensor:
        return self.loss_of(self.model, *arguments)


def _run(number: int, run: Callable, arguments: tuple, options: argparse.Namespace) -> None:
    backend = "gloo"
    if options.device.type != "cpu":
        backend = gpu.dist_backend()
        # torchrun tells each process its number on its own machine.
        gpu.set_device(int(os.environ.get("LOCAL_RANK", number)))
    distributed.init_process_group(backend, rank=number, world_size=options.world_size)
    run(*arguments, options)
    distributed.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]
