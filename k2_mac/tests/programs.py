"""Programs for `python -m k2_mac.run`."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]

# A recipe in the style of icefall: a pruned transducer, DDP, autocast and checkpoints.
RECIPE = {
    "asr/train.py": '''#!/usr/bin/env python3
"""Trains."""
import argparse
import os

import k2
import torch
import torch.multiprocessing as mp
from torch.cuda.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel as DDP

from asr.dist import setup_dist
from asr.model import Model
from asr.utils import memory, torch_autocast


def run(rank, world_size, args):
    if world_size > 1:
        setup_dist(rank, world_size)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", rank)
    torch.manual_seed(42)
    model = Model().to(device)
    if world_size > 1:
        model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = GradScaler(enabled=args.use_fp16, init_scale=128.0)
    symbols = torch.tensor([[1, 2, 3], [3, 1, 0]], device=device)
    boundary = torch.tensor([[0, 0, 3, 20], [0, 0, 2, 15]], device=device)
    for step in range(3):
        x = torch.linspace(-1, 1, 2 * 20 * 8).reshape(2, 20, 8) * (step + rank + 1)
        with torch_autocast(enabled=args.use_fp16):
            loss = model(x.to(device), symbols, boundary)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert memory(loss) > 0
    if rank == 0:
        torch.save([loss.detach(), *model.parameters()], args.result)
    if world_size > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--use-fp16", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "0")
    if args.world_size > 1:
        mp.spawn(run, args=(args.world_size, args), nprocs=args.world_size, join=True)
    else:
        run(0, 1, args)


if __name__ == "__main__":
    main()
''',
    "asr/__init__.py": "",
    "asr/dist.py": """import os
import torch
from torch import distributed as dist


def setup_dist(rank, world_size):
    dist.init_process_group(
        "nccl", init_method=os.environ["STORE"], rank=rank, world_size=world_size
    )
    torch.cuda.set_device(rank)
""",
    "asr/utils.py": """import torch


def torch_autocast(device_type="cuda", **kwargs):
    return torch.amp.autocast(device_type=device_type, **kwargs)


def memory(x):
    return x.is_cuda and torch.cuda.max_memory_allocated()
""",
    "asr/model.py": """import k2
import torch
import torch.nn as nn

from asr.utils import torch_autocast


class Rounded(torch.autograd.Function):
    @staticmethod
    @torch.cuda.amp.custom_fwd
    def forward(ctx, x):
        if torch.is_autocast_enabled():
            x = x.to(torch.get_autocast_gpu_dtype())
        return x

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, grad):
        return grad


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 6), nn.Embedding(4, 6)

    def forward(self, x, symbols, boundary):
        am = Rounded.apply(self.encoder(x)).float()
        lm = self.decoder(torch.cat([torch.zeros_like(symbols[:, :1]), symbols], dim=1))
        scale = torch.ones(6, dtype=torch.float64, device=x.device)
        with torch_autocast(enabled=False):
            simple, (px_grad, py_grad) = k2.rnnt_loss_smoothed(
                lm=lm,
                am=am,
                symbols=symbols,
                termination_symbol=0,
                boundary=boundary,
                reduction="sum",
                return_grad=True,
            )
            ranges = k2.get_rnnt_prune_ranges(px_grad, py_grad, boundary, 2)
            am, lm = k2.do_rnnt_pruning(am=am, lm=lm, ranges=ranges)
            logits = torch.tanh(am + lm) * scale.to(am.dtype)
            pruned = k2.rnnt_loss_pruned(logits, symbols, ranges, 0, boundary, reduction="sum")
        return simple + pruned
""",
}
# The same recipe, changed by hand for mps.
BY_HAND = {
    "asr/train.py": {
        "from torch.cuda.amp import GradScaler": "from k2_mac import gpu",
        "torch.cuda.is_available()": "gpu.is_available()",
        'torch.device("cuda", rank)': "gpu.pick_device(rank)",
        "device_ids=[rank]": "device_ids=[0]",
        "GradScaler(enabled": "gpu.GradScaler(enabled",
    },
    "asr/dist.py": {
        "import torch\n": "from k2_mac import gpu\n",
        '"nccl"': "gpu.dist_backend()",
        "    torch.cuda.set_device(rank)\n": "",
    },
    "asr/utils.py": {
        "import torch": "import torch\nfrom k2_mac import gpu",
        'device_type="cuda"': 'device_type="mps"',
        "x.is_cuda and torch.cuda.max_memory_allocated()": "gpu.max_memory_allocated()",
    },
    "asr/model.py": {
        "import torch\n": "import torch\nfrom k2_mac import gpu\n",
        "torch.cuda.amp.custom_fwd": "gpu.custom_fwd",
        "torch.cuda.amp.custom_bwd": "gpu.custom_bwd",
        "torch.is_autocast_enabled()": "gpu.is_autocast_enabled()",
        "torch.get_autocast_gpu_dtype()": "gpu.get_autocast_dtype()",
        "float64": "float32",
    },
}


def by_hand():
    files = dict(RECIPE)
    for path, changes in BY_HAND.items():
        for old, new in changes.items():
            assert files[path].count(old) == 1, old
            files[path] = files[path].replace(old, new)
    return files


# A module whose count is 1 if k2_mac.run has changed the module, otherwise 0.
SAYS = "count = int('mps'.startswith('cuda'))\n"


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text if isinstance(text, bytes) else text.encode())
