"""Fewer commands of the optimizer, and fewer waits of the backward pass, for zipformer of icefall.

Copy this file into the recipe's folder `zipformer`.  docs/decoders.md has the lines of
`zipformer/train.py` that use it.  The import replaces
`scaling.WhiteningPenaltyFunction` by LateWhitening.
"""

import contextlib
import random

import scaling
import torch
from optim import ScaledAdam


class StackedAdam(ScaledAdam):
    """Keeps parameters of one shape in one tensor, so that a step need not copy them."""

    @contextlib.contextmanager
    def batched_params(self, params, names):
        """Yields what ScaledAdam's method yields: a stack, its state and its names, for each shape.

        The parameters are views of the stacks, so a change of a stack changes them.
        """
        batches = {}
        for p, name in zip(params, names):
            batches.setdefault((str(p.dtype), *p.shape), []).append((p, name))
        # A pickled optimizer has no stacks.
        stacks = self.__dict__.setdefault("stacks", {})
        tuples = []
        for key in sorted(batches):
            batch, batch_names = zip(*batches[key])
            stack = stacks.get(batch[0])
            # In the first step, and after the program has moved the parameters to other memory.
            if stack is None or stack.data_ptr() != batch[0].data_ptr():
                stack = stacks[batch[0]] = torch.stack(batch)
                for p, part in zip(batch, stack):
                    p.data = part
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in batch]
            stack.grad = torch.stack(grads)
            tuples.append((stack, self.state[batch[0]], list(batch_names)))
        yield tuples
        for stack, _, _ in tuples:
            stack.grad = None


class LateWhitening(torch.autograd.Function):
    """Computes the penalty of Whiten in any case; the device decides whether to add it."""

    forward = staticmethod(scaling.WhiteningPenaltyFunction.forward)
    # The Whitens of this step, each with a tensor that is true if its metric has reached the limit.
    found = []

    @staticmethod
    def backward(ctx, x_grad):
        (x,), whiten = ctx.saved_tensors, ctx.module
        random.random()  # WhiteningPenaltyFunction takes a number, too
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            x = x.detach().float().requires_grad_()
            metric = scaling._whitening_metric(x, whiten.num_groups)
            metric.backward()
        is_large = ~(metric.detach() < float(whiten.whitening_limit))
        LateWhitening.found.append((whiten, is_large))
        ratio = x_grad.float().norm() / (x.grad.norm() + 1e-20)
        penalty = torch.where(is_large, x.grad * (float(whiten.grad_scale) * ratio), 0)
        return x_grad + penalty.to(x_grad.dtype), None

    @staticmethod
    def read():
        """Sets the probabilities of the Whitens for the next step; waits once."""
        if LateWhitening.found:
            whitens, are_large = zip(*LateWhitening.found)
            for whiten, is_large in zip(whitens, torch.stack(are_large).tolist()):
                whiten.prob = whiten.max_prob if is_large else whiten.min_prob
            LateWhitening.found.clear()


scaling.WhiteningPenaltyFunction = LateWhitening
