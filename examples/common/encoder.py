"""A small encoder in the manner of the conformer, with k2's Swoosh."""

import k2
import torch
from torch import nn

from common.speech import NUM_FILTERS

SUBSAMPLING = 3


class SwooshL(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return k2.swoosh_l(x)


class SwooshR(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return k2.swoosh_r(x)


def _feed_forward(dim: int) -> nn.Module:
    return nn.Sequential(
        nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), SwooshL(), nn.Linear(3 * dim, dim)
    )


class _Attention(nn.Module):
    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(dim)
        self.inputs = nn.Linear(dim, 3 * dim)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        N, T, dim = x.shape
        q, k, v = self.inputs(self.norm(x)).view(N, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (dim // self.num_heads) ** -0.5
        scores = scores.masked_fill(padding[:, None, None, :], float("-inf"))
        mixed = scores.softmax(dim=-1) @ v
        return self.output(mixed.transpose(1, 2).reshape(N, T, dim))


class _Convolution(nn.Module):
    """A convolution over neighbouring frames.  Attention alone ignores the order of the frames."""

    def __init__(self, dim: int, kernel: int = 7):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, 2 * dim)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.output = nn.Sequential(SwooshR(), nn.Linear(dim, dim))

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        x = nn.functional.glu(self.gate(self.norm(x)), dim=-1)
        x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        x = self.depthwise(x.transpose(1, 2)).transpose(1, 2)
        return self.output(x)


class _Block(nn.Module):
    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.first = _feed_forward(dim)
        self.attention = _Attention(dim, num_heads)
        self.convolution = _Convolution(dim)
        self.second = _feed_forward(dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.first(x)
        x = x + self.attention(x, padding)
        x = x + self.convolution(x, padding)
        return self.norm(x + 0.5 * self.second(x))


class Encoder(nn.Module):
    """Convolutional subsampling by SUBSAMPLING, then conformer-like blocks.

    There is no dropout, because its random masks would differ between devices.  Then the loss
    curves, which users compare, would differ, too.
    """

    def __init__(self, dim: int, num_blocks: int = 2, num_heads: int = 4):
        super().__init__()
        self.subsample = nn.Conv1d(NUM_FILTERS, dim, 5, stride=SUBSAMPLING, padding=2)
        self.activation = SwooshR()
        self.blocks = nn.ModuleList(_Block(dim, num_heads) for _ in range(num_blocks))

    def forward(
        self, features: torch.Tensor, num_frames: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encodes utterances.

        Args:
          features: (N, T, NUM_FILTERS), torch.float32.
          num_frames: (N,), torch.int64, on the CPU.
        Returns:
          (N, ceil(T / SUBSAMPLING), dim), torch.float32, on the device of the features; and the
          new numbers of frames, (N,), torch.int64, on the CPU.
        """
        x = self.subsample(features.transpose(1, 2)).transpose(1, 2)
        x = self.activation(x)
        num_frames = (num_frames + SUBSAMPLING - 1) // SUBSAMPLING
        padding = torch.arange(x.size(1)) >= num_frames.unsqueeze(1)
        padding = padding.to(x.device)
        for block in self.blocks:
            x = block(x, padding)
        return x, num_frames
