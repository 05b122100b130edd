"""Trains a pruned RNN-T on phones.

For each frame, the simple, smoothed loss finds a few likely positions in the transcript.  The
joiner network computes logits only at these positions.  The program prints the phone error rate of
greedy search on held-out speakers, before and after training.

    python examples/transducer.py build/transducer --device mps
"""

import k2
import torch
from common import speech, training
from common.encoder import Encoder
from torch import nn

DIM = 64
BLANK = 0
S_RANGE = 5  # at how many positions the joiner computes logits for each frame
NUM_SYMBOLS = len(speech.PHONES)
CONTEXT = 2  # the predictor reads this many phones before each symbol
# The weight of each loss goes from its first number to its second, in this part of the training.
WARM = 0.3
SIMPLE_WEIGHTS = 1.0, 0.5
PRUNED_WEIGHTS = 0.1, 1.0


class Predictor(nn.Module):
    """A language model whose only input is the last CONTEXT phones."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(NUM_SYMBOLS, DIM)
        self.mix = nn.Conv1d(DIM, DIM, CONTEXT)

    def forward(self, phones: torch.Tensor) -> torch.Tensor:
        """Takes phones, (N, CONTEXT - 1 + S), torch.int64; returns (N, S, DIM)."""
        x = self.mix(self.embedding(phones).transpose(1, 2)).transpose(1, 2)
        return k2.swoosh_r(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(DIM)
        self.predictor = Predictor()
        # The simple loss has one linear layer for the encoder and one for the predictor.
        self.simple_am = nn.Linear(DIM, NUM_SYMBOLS)
        self.simple_lm = nn.Linear(DIM, NUM_SYMBOLS)
        self.am = nn.Linear(DIM, DIM)
        self.lm = nn.Linear(DIM, DIM)
        self.output = nn.Linear(DIM, NUM_SYMBOLS)

    def join(self, am: torch.Tensor, lm: torch.Tensor) -> torch.Tensor:
        """Takes the outputs of encoder and predictor, (..., DIM); returns (..., NUM_SYMBOLS)."""
        return self.output(k2.swoosh_l(am + lm))


def loss_of(model: Model, batch: speech.Batch, done: float) -> torch.Tensor:
    """Returns the loss per phone, a weighted sum of the simple and the pruned loss.

    Early in training, the simple loss has the larger weight; later, the pruned loss.
    """
    encoded, num_frames = model.encoder(batch.features, batch.num_frames)
    symbols, boundary = symbols_and_boundary(batch.phones, num_frames, encoded.device)
    # The predictor's first phones are blanks.
    predicted = model.predictor(nn.functional.pad(symbols, (CONTEXT, 0), value=BLANK))

    simple, (px_grad, py_grad) = k2.rnnt_loss_smoothed(
        lm=model.simple_lm(predicted),
        am=model.simple_am(encoded),
        symbols=symbols,
        termination_symbol=BLANK,
        lm_only_scale=0.1,
        am_only_scale=0.1,
        boundary=boundary,
        reduction="sum",
        return_grad=True,
    )
    ranges = k2.get_rnnt_prune_ranges(px_grad, py_grad, boundary, S_RANGE)
    am, lm = k2.do_rnnt_pruning(model.am(encoded), model.lm(predicted), ranges)
    pruned = k2.rnnt_loss_pruned(
        model.join(am, lm), symbols, ranges, BLANK, boundary, reduction="sum"
    )
    # The ranges are useful only after some training with the simple loss.
    weights = [
        first + (last - first) * min(1.0, done / WARM)
        for first, last in (SIMPLE_WEIGHTS, PRUNED_WEIGHTS)
    ]
    total = weights[0] * simple + weights[1] * pruned
    return total / sum(map(len, batch.phones))


def symbols_and_boundary(
    transcripts: list[list[int]], num_frames: torch.Tensor, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns two arguments of k2's RNN-T losses, on a device.

    Args:
      transcripts: the phones of each utterance.
      num_frames: the number of the encoder's frames of each utterance.
    Returns:
      The padded transcripts, (N, S); and the boundary, (N, 4): for each utterance the first symbol,
      the first frame, the number of symbols and the number of frames.
    """
    symbols = nn.utils.rnn.pad_sequence(
        [torch.tensor(phones) for phones in transcripts], batch_first=True, padding_value=BLANK
    )
    zeros = torch.zeros_like(num_frames)
    lengths = torch.tensor([len(phones) for phones in transcripts])
    boundary = torch.stack([zeros, zeros, lengths, num_frames], dim=1)
    return symbols.to(device), boundary.to(device)


@torch.no_grad()
def recognise(model: Model, batch: speech.Batch) -> list[list[int]]:
    """Runs a greedy search for all utterances at once, with at most one phone a frame."""
    encoded, num_frames = model.encoder(batch.features, batch.num_frames)
    am = model.am(encoded)
    found = [[BLANK] * CONTEXT for _ in batch.phones]
    for frame in range(am.size(1)):
        context = torch.tensor([phones[-CONTEXT:] for phones in found])
        lm = model.lm(model.predictor(context.to(am.device)))
        best = model.join(am[:, frame], lm[:, -1]).argmax(dim=-1).tolist()
        for phones, symbol, frames in zip(found, best, num_frames.tolist()):
            if symbol != BLANK and frame < frames:
                phones.append(symbol)
    return [phones[CONTEXT:] for phones in found]


if __name__ == "__main__":
    training.main(__doc__.split("\n")[0], Model, loss_of, recognise, steps=400, learning_rate=6e-3)
