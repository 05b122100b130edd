"""The shared code of the examples: speech, an encoder, a training loop."""

import torch

# The tensors are so small that several threads would mostly wait for each other.
torch.set_num_threads(1)
