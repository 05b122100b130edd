"""Stands in for the recipe's optim.py: only the interface that fewer_waits.py uses."""

import contextlib

import torch


class ScaledAdam(torch.optim.Optimizer):
    """Gradient descent with momentum on stacks of the parameters, which it copies in each step."""

    def __init__(self, params, lr):
        names, params = zip(*params)
        super().__init__(params, {"lr": lr})
        self.names = names

    @contextlib.contextmanager
    def batched_params(self, params, names):
        shapes = sorted({tuple(p.shape) for p in params})
        batches = [[(p, n) for p, n in zip(params, names) if p.shape == shape] for shape in shapes]
        tuples = []
        for batch in batches:
            stack = torch.stack([p for p, _ in batch])
            grads = [p.new_zeros(p.shape) if p.grad is None else p.grad for p, _ in batch]
            stack.grad = torch.stack(grads)
            tuples.append((stack, self.state[batch[0][0]], [name for _, name in batch]))
        yield tuples
        for (stack, _, _), batch in zip(tuples, batches):
            for part, (p, _) in zip(stack, batch):
                p.copy_(part)

    @torch.no_grad()
    def step(self):
        [group] = self.param_groups
        with self.batched_params(group["params"], self.names) as batches:
            for stack, state, names in batches:
                assert state.setdefault("names", names) == names and len(names) == len(stack)
                momentum = state.setdefault("momentum", torch.zeros_like(stack))
                momentum.mul_(0.9).add_(stack.grad)
                stack.sub_(momentum, alpha=group["lr"])
