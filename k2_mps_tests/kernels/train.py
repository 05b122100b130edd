"""Trains a small transducer with the kernels of mutual information, without k2.

    python -m k2_mps_tests.kernels --train

`make build` ends with this program if k2's repository cannot be reached.  torch compiles
mutual_information.metal, as it does for k2.  The RNN-T loss, the network and its optimizer run on
mps, emulated on Linux.  The speech comes from the examples.  At each step, a recursion that shares
no code with the kernels also computes the loss and its gradients, in float64 on the CPU.  The
program compares the results.
"""

import argparse
import copy
import sys

import torch
from torch import nn

from examples.common import speech
from k2_mps_tests import ending
from k2_mps_tests.kernels import on_mps, sources
from k2_mps_tests.kernels.case import Buffer

Number = sources.enumeration("mutual_information.h", "MutualInformationBuffer")
PARAMS = sources.layout("mutual_information.h", "MutualInformationParams")
BLANK = 0
DIM = 32
NUM_SYMBOLS = len(speech.PHONES)
UTTERANCES = 2

# The largest relative error that the loss and each gradient may have.  The error of a gradient is
# the norm of its difference from the reference, divided by the norm of the reference.  A path has
# about 60 sums, each rounded to float32 (6e-8 of its size), and about 60 factors with an error of
# 5e-7; see checks/mutual_information.py.  So the kernel's error is at most 3e-5.  The network can
# add an equal error, because its gradients are sums over the frames and symbols of all utterances.
TOLERANCE = 6e-5


class MutualInformation(torch.autograd.Function):
    """The log of the sum over all paths through a lattice, computed on mps.

    From cell (s, t), a path goes to (s + 1, t) with the score px[s][t], or to (s, t + 1) with the
    score py[s][t].

    px        (B, S, T + 1), float32, not empty
    py        (B, S + 1, T), float32, not empty
    boundary  (B, 4), int64: the first s and t of a sequence, and the last s and t
    returns   (B,)
    """

    library = None

    @classmethod
    def launch(cls, name, arguments, shape):
        """Runs a kernel in one dispatch.

        Args:
          arguments: {number: tensor}, except the parameters and the buffer of edges.  This function
            adds these two arguments.
        """
        if cls.library is None:
            cls.library = torch.mps.compile_shader(sources.text("mutual_information"))
        B, S, T = shape
        assert S < 64, "the speech has shorter utterances; one dispatch has 64 rows at most"
        threads = -(-(S + 1) // 32) * 32
        edges = torch.empty(B, 2, T + 1, device="mps")
        params = Buffer.struct(PARAMS, S=S, T=T, t_offset=0, has_boundary=1, band=0)
        arguments = {
            **arguments,
            Number.kMiEdges: edges,
            Number.kMiParams: on_mps.tensor_of(params.content),
        }
        kernel = getattr(cls.library, name)
        kernel(*on_mps.by_position(arguments), threads=B * threads, group_size=threads)

    @staticmethod
    def forward(context, px, py, boundary):
        shape = (px.size(0), px.size(1), py.size(2))
        B, S, T = shape
        p = torch.empty(B, S + 1, T + 1, device="mps")
        result = torch.empty(B, device="mps")
        arguments = {
            Number.kMiPx: px.contiguous(),
            Number.kMiPy: py.contiguous(),
            Number.kMiBoundary: boundary,
            Number.kMiP: p,
            Number.kMiAns: result,
        }
        MutualInformation.launch("mutual_information_forward", arguments, shape)
        context.save_for_backward(boundary, p)
        context.shapes = px.shape, py.shape
        return result

    @staticmethod
    def backward(context, grad):
        boundary, p = context.saved_tensors
        # The kernel writes nothing outside of the boundary.
        px_grad, py_grad = (torch.zeros(shape, device="mps") for shape in context.shapes)
        B, S, _ = context.shapes[0]
        arguments = {
            Number.kMiBoundary: boundary,
            Number.kMiP: p,
            Number.kMiAnsGrad: grad.contiguous(),
            Number.kMiPxGrad: px_grad,
            Number.kMiPyGrad: py_grad,
        }
        shape = (B, S, context.shapes[1][2])
        MutualInformation.launch("mutual_information_backward", arguments, shape)
        return px_grad, py_grad, None


def by_recursion(px, py, boundary):
    """Returns the result of MutualInformation, computed row by row in the type of the input."""
    results = []
    for b, (_, _, S, T) in enumerate(boundary.tolist()):
        row = None
        for s in range(S + 1):
            # For each column, the score of the path along the row from the first column.
            along = nn.functional.pad(py[b, s, :T].cumsum(0), (1, 0))
            if s == 0:
                row = along
            else:
                row = along + torch.logcumsumexp(row + px[b, s - 1, : T + 1] - along, dim=0)
        results.append(row[T])
    return torch.stack(results)


class Model(nn.Module):
    """An encoder, a predictor that sees the last phone, and a joiner."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(speech.NUM_FILTERS, DIM, 5, stride=3)
        self.second = nn.Conv1d(DIM, DIM, 3, stride=2)
        self.embedding = nn.Embedding(NUM_SYMBOLS, DIM)
        self.predictor = nn.Linear(DIM, DIM)
        self.output = nn.Linear(DIM, NUM_SYMBOLS)

    def forward(self, features, previous):
        """Returns the log-probs of the next symbol, (B, S + 1, T, NUM_SYMBOLS)."""
        heard = self.second(self.first(features.transpose(1, 2)).relu()).transpose(1, 2)
        said = self.predictor(self.embedding(previous).relu())
        joined = (heard.unsqueeze(1) + said.unsqueeze(2)).tanh()
        return self.output(joined).log_softmax(dim=-1)


def frames_of(num_frames):
    """Returns how many frames the encoder makes from `num_frames` frames."""
    return ((num_frames - 5) // 3 + 1 - 3) // 2 + 1


def loss_of(model, batch, total):
    """Returns the RNN-T loss of a batch, divided by the number of its phones.

    Args:
      batch: a result of speech.make_batch().
      total: MutualInformation.apply or by_recursion.
    """
    device = model.output.weight.device
    lengths = torch.tensor([len(phones) for phones in batch.phones])
    symbols = nn.utils.rnn.pad_sequence(list(map(torch.tensor, batch.phones)), batch_first=True)
    zeros = torch.zeros_like(lengths)
    boundary = torch.stack([zeros, zeros, lengths, frames_of(batch.num_frames)], dim=1)

    previous = nn.functional.pad(symbols, (1, 0), value=BLANK).to(device)
    scores = model(batch.features.to(device, model.output.weight.dtype), previous)
    # A phone takes no frame, and no phone comes after the last frame.
    index = symbols.to(device)[:, :, None, None].expand(-1, -1, scores.size(2), 1)
    phones = scores[:, :-1].gather(3, index).squeeze(3)
    px = nn.functional.pad(phones, (0, 1), value=-float("inf"))
    found = total(px, scores[..., BLANK], boundary.to(device))
    return -found.sum() / lengths.sum()


def compare(model, batch):
    """Computes loss and gradients on mps, and in float64 on the CPU.

    Returns:
      (the loss, its relative difference, the largest relative difference of a gradient).
    """
    reference = copy.deepcopy(model).to("cpu", torch.float64)
    model.zero_grad()
    reference.zero_grad()
    loss = loss_of(model, batch, MutualInformation.apply)
    loss.backward()
    expected = loss_of(reference, batch, by_recursion)
    expected.backward()
    worst = 0.0
    for ours, other in zip(model.parameters(), reference.parameters(), strict=True):
        difference = (ours.grad.cpu().double() - other.grad).norm() / other.grad.norm()
        # Python's max() could drop a NaN.
        worst = worst if difference <= worst else difference.item()
    value = expected.item()
    return loss.item(), abs(loss.item() - value) / value, worst


def main(arguments=None, say=print):
    """Trains; returns an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=25)
    steps = parser.parse_args(arguments).steps

    torch.manual_seed(0)
    model = Model().to("mps")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    say("on mps" + (" (emulated)" if sys.platform == "linux" else ""))
    say("step  loss for each phone  off from float64 by: loss  gradient")
    losses, worst = [], 0.0
    for step in range(steps):
        loss, off, gradient = compare(model, speech.make_batch(step, UTTERANCES))
        optimizer.step()
        losses.append(loss)
        for difference in (off, gradient):
            worst = worst if difference <= worst else difference
        if step % 5 == 0 or step == steps - 1:
            say(f"{step:4}  {loss:19.4f}  {off:25.1e}  {gradient:8.1e}")

    if not worst <= TOLERANCE:
        say(f"error: a result is off by {worst:.1e}, which is more than {TOLERANCE:.0e}")
        return 1
    few = max(1, steps // 5)
    first, last = (sum(part) / few for part in (losses[:few], losses[-few:]))
    if not last < 0.8 * first:
        say(f"error: the loss has not fallen: {first:.2f} at first, {last:.2f} at last")
        return 1
    say(f"the loss fell from {first:.2f} to {last:.2f}")
    return 0


if __name__ == "__main__":
    ending.run(main)
