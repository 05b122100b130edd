"""The training loop of the examples: seeds, checkpoints, progress, curves."""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from rich import progress
from torch import nn

from common import processes
from common.speech import Batch, error_rate, make_batch

CHECKPOINT = "checkpoint.pt"
CURVE = "curve.json"
WARM_UP = 0.1  # of all steps


def main(
    description: str,
    make_model: Callable[[], nn.Module],
    loss_of: Callable[[nn.Module, Batch, float], torch.Tensor],
    recognise: Callable[[nn.Module, Batch], list[list[int]]],
    steps: int,
    learning_rate: float,
) -> None:
    """Trains with the options of the command line, and prints the error rates.

    Args:
      description: the text of --help.
      make_model: a function that makes the model on the CPU.
      loss_of: the argument of `train`.
      recognise: called as recognise(model, batch); returns the phones of each utterance.
      steps, learning_rate: the defaults of the options.
    """
    parser = _parser(description, steps, learning_rate)
    options = parser.parse_args()
    if options.batch < options.world_size:
        parser.error("--batch needs an utterance for each process of --world-size")
    processes.start(_run, (make_model, loss_of, recognise), options)


def _run(make_model, loss_of, recognise, options: argparse.Namespace) -> None:
    """Trains in this process; the arguments are those of `main`."""
    # The CPU makes the weights, so that training begins with the same weights on all devices.
    torch.manual_seed(options.seed)
    model = make_model().to(options.device)

    def print_error_rate(when: str) -> None:
        if processes.rank() > 0:
            return
        batch = make_batch(options.seed, options.held_out, held_out=True)
        found = recognise(model, batch.to(options.device))
        print(f"phone error rate {when}: {error_rate(batch.phones, found):.1%}")

    if not options.resume:
        print_error_rate("before")
    losses = train(model, loss_of, options)
    if processes.rank() == 0:
        print(f"loss: {losses[0]:.3f} to {losses[-1]:.3f}")
    print_error_rate("after")


def _parser(description: str, steps: int, learning_rate: float) -> argparse.ArgumentParser:
    ans = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    ans.add_argument("folder", type=Path, help="the folder of checkpoint and loss curve")
    add_device(ans)
    processes.add_world_size(ans)
    ans.add_argument("--seed", type=int, default=1, help="the seed of the weights and the data")
    ans.add_argument(
        "--steps", type=processes.count, default=steps, help="how long to train, in batches"
    )
    ans.add_argument(
        "--stop-after",
        type=processes.count,
        metavar="STEPS",
        help="stop early; --resume continues from there",
    )
    ans.add_argument(
        "--save-every",
        type=processes.count,
        default=50,
        metavar="STEPS",
        help="how often to write a checkpoint",
    )
    ans.add_argument(
        "--resume", action="store_true", help="continue from the checkpoint in the folder"
    )
    ans.add_argument(
        "--batch", type=processes.count, default=16, help="utterances a batch, of all processes"
    )
    ans.add_argument(
        "--held-out", type=processes.count, default=64, help="utterances for the error rate"
    )
    ans.add_argument("--learning-rate", type=float, default=learning_rate)
    return ans


def add_device(parser: argparse.ArgumentParser) -> None:
    """Adds the option --device."""
    parser.add_argument("--device", default="cpu", type=torch.device, help="cpu, cuda or mps")


def name_of(device: torch.device) -> str:
    """Returns the name of a device in results.  On systems other than macOS, mps is emulated."""
    if device.type == "mps" and sys.platform != "darwin":
        return "mps (emulated)"
    return device.type


def train(
    model: nn.Module,
    loss_of: Callable[[nn.Module, Batch, float], torch.Tensor],
    options: argparse.Namespace,
) -> list[float]:
    """Trains a model, or resumes an interrupted training.

    The batch and the random numbers of a step depend only on the seed and the number of the step.
    So a resumed run gives the same result as a run without interruption.  On the CPU, the two
    results are bit for bit identical.

    Args:
      model: on the device, in each process; changed in place.
      loss_of: called as loss_of(model, batch, done); returns the loss of a batch.  `done` is the
        finished part of the training, from 0 to 1.
      options: the options of the command line.
    Returns:
      The loss of each step, from the first one on.
    """
    options.folder.mkdir(parents=True, exist_ok=True)
    state = _first_state(model, options)
    if options.resume:
        _load(state, options)
    loss_of_batch = processes.parallel(model, loss_of)
    end = min(options.steps, options.stop_after or options.steps)
    with _progress_bar(options.device, end, state.losses) as show:
        for step in range(len(state.losses), end):
            state.losses.append(_take_step(state, loss_of_batch, step, options))
            show(step + 1, state.losses[-1])
            is_due = (step + 1) % options.save_every == 0 or step + 1 == end
            if is_due and processes.rank() == 0:
                _save(state, options)
    if processes.rank() == 0:
        text = json.dumps({"device": name_of(options.device), "losses": state.losses})
        (options.folder / CURVE).write_text(text + "\n")
    return state.losses


@dataclasses.dataclass
class _State:
    """The parts of a training that change with each step, and that a checkpoint keeps."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    losses: list[float]


def _first_state(model: nn.Module, options: argparse.Namespace) -> _State:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, eps=1e-6)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: options.learning_rate * _rate(step / options.steps)
    )
    return _State(model, optimizer, schedule, losses=[])


def _take_step(state: _State, loss_of_batch, step: int, options: argparse.Namespace) -> float:
    """Trains the model with one batch; returns the loss, the mean over all processes."""
    seed = options.seed * 1_000_003 + step
    # Swoosh draws random numbers to round its derivative to 8 bits.
    torch.manual_seed(seed + 15_485_863 * processes.rank())
    batch, weight = processes.share(make_batch(seed, options.batch))
    loss = weight * loss_of_batch(batch.to(options.device), step / options.steps)
    state.optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(state.model.parameters(), 5.0)
    state.optimizer.step()
    state.schedule.step()
    return processes.mean(loss)


@contextlib.contextmanager
def _progress_bar(device: torch.device, end: int, losses: list[float]):
    """Shows a progress bar, if this is the first process.

    Args:
      end: the number of steps at the end of the run.
      losses: the losses of the steps before the run.
    Yields:
      A function, to be called as show(number of finished steps, loss of the last one).
    """
    with progress.Progress(
        progress.TextColumn(name_of(device)),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("loss {task.fields[loss]:.3f}"),
        disable=processes.rank() > 0,
    ) as bar:
        task = bar.add_task(
            "", total=end, completed=len(losses), loss=losses[-1] if losses else float("nan")
        )
        yield lambda finished, loss: bar.update(task, completed=finished, loss=loss)


def load_model(model: nn.Module, folder: Path) -> None:
    """Loads the weights of a folder's checkpoint into a model."""
    model.load_state_dict(_read(folder)["model"])


def _rate(done: float) -> float:
    """Returns the factor of the learning rate: a linear warm-up, then a cosine down to zero."""
    if done < WARM_UP:
        return max(done, 1e-3) / WARM_UP
    return 0.5 * (1 + math.cos((done - WARM_UP) / (1 - WARM_UP) * math.pi))


def _save(state: _State, options: argparse.Namespace) -> None:
    checkpoint = {
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "schedule": state.schedule.state_dict(),
        "losses": state.losses,
        "settings": _settings(options),
    }
    path = options.folder / CHECKPOINT
    draft = path.with_suffix(".draft")
    torch.save(checkpoint, draft)
    os.replace(draft, path)  # If the process is killed before this line, the old file remains.


def _settings(options: argparse.Namespace) -> dict:
    """Returns the options that a resumed run must not change."""
    names = ("seed", "steps", "batch", "learning_rate", "world_size")
    return {name: getattr(options, name) for name in names}


def _load(state: _State, options: argparse.Namespace) -> None:
    """Loads the checkpoint of the folder into `state`."""
    checkpoint = _read(options.folder)
    if checkpoint["settings"] != _settings(options):
        settings = checkpoint["settings"]
        sys.exit(f"error: the run in {options.folder} has other settings: {settings}")
    state.model.load_state_dict(checkpoint["model"])
    state.optimizer.load_state_dict(checkpoint["optimizer"])
    state.schedule.load_state_dict(checkpoint["schedule"])
    state.losses = checkpoint["losses"]


def _read(folder: Path) -> dict:
    try:
        return torch.load(folder / CHECKPOINT, map_location="cpu")
    except FileNotFoundError:
        sys.exit(f"error: there is no {CHECKPOINT} in {folder}")
