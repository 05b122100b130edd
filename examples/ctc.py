"""Trains CTC on phones with k2.ctc_loss.

The graph of a transcript is the composition of ctc_topo with a linear acceptor of its
phones; k2.ctc_graph makes this graph in one step.  The program prints the phone error rate on
held-out speakers, before and after training.

    python examples/ctc.py build/ctc --device mps
"""

import k2
import torch
from common import speech, training
from common.encoder import Encoder
from torch import nn

DIM = 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(DIM)
        self.output = nn.Linear(DIM, len(speech.PHONES))

    def forward(self, batch: speech.Batch):
        """Returns log-probabilities, (N, T, len(PHONES)), and the numbers of frames, (N,).

        The numbers of frames are on the CPU.
        """
        x, num_frames = self.encoder(batch.features, batch.num_frames)
        return self.output(x).log_softmax(dim=-1), num_frames


def loss_of(model: Model, batch: speech.Batch, done: float) -> torch.Tensor:
    """Returns the CTC loss per phone."""
    log_probs, num_frames = model(batch)
    # For each utterance: its row of log_probs, its first frame, its number of frames.
    segments = torch.stack(
        [torch.arange(len(num_frames)), torch.zeros_like(num_frames), num_frames], dim=1
    ).to(torch.int32)
    graph = k2.ctc_graph(batch.phones, device=log_probs.device)
    loss = k2.ctc_loss(graph, k2.DenseFsaVec(log_probs, segments), output_beam=10, reduction="sum")
    return loss / sum(map(len, batch.phones))


@torch.no_grad()
def recognise(model: Model, batch: speech.Batch) -> list[list[int]]:
    """Returns the phones of the best path through ctc_topo."""
    log_probs, num_frames = model(batch)
    topo = k2.ctc_topo(len(speech.PHONES) - 1, device=log_probs.device)
    lattice = k2.get_lattice(log_probs, num_frames, topo)
    return k2.get_aux_labels(k2.one_best_decoding(lattice))


if __name__ == "__main__":
    training.main(__doc__.split("\n")[0], Model, loss_of, recognise, steps=300, learning_rate=4e-3)
