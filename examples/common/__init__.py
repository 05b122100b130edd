"""The shared code of the examples: speech, an encoder, a training loop."""

import torch

# The tensors are so small that with several threads, most of the time would be spent waiting.
torch.set_num_threads(1)
