"""Stands in for the recipe's scaling.py: only the interface that fewer_waits.py uses."""

import random

import torch


def _whitening_metric(x, num_groups):
    """Is 1 if the channels of a group are not correlated and have one variance, else larger."""
    x = x.reshape(-1, num_groups, x.shape[-1] // num_groups).transpose(0, 1)
    x = x - x.mean(dim=1, keepdim=True)
    covariance = x.transpose(1, 2) @ x
    mean = covariance.diagonal(dim1=1, dim2=2).mean()
    return (covariance**2).sum() / (x.shape[0] * x.shape[2]) / (mean**2 + 1e-20)


class WhiteningPenaltyFunction(torch.autograd.Function):
    """Returns x; adds the gradient of a large metric to the gradient of x.  Waits in each call."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.save_for_backward(x)
        ctx.module = module
        return x

    @staticmethod
    def backward(ctx, x_grad):
        [x], module = ctx.saved_tensors, ctx.module
        with torch.enable_grad():
            x = x.detach().float().requires_grad_()
            metric = _whitening_metric(x, module.num_groups)
        random.random()
        if metric < float(module.whitening_limit):
            module.prob = module.min_prob
            return x_grad, None
        module.prob = module.max_prob
        metric.backward()
        scale = float(module.grad_scale) * (x_grad.float().norm() / (x.grad.norm() + 1e-20))
        return x_grad + (x.grad * scale).to(x_grad.dtype), None


class Whiten(torch.nn.Module):
    def __init__(self, limit):
        super().__init__()
        self.num_groups, self.whitening_limit, self.grad_scale = 2, limit, 0.1
        self.min_prob, self.max_prob, self.prob = 0.25, 1.0, None

    def forward(self, x):
        return WhiteningPenaltyFunction.apply(x, self)
