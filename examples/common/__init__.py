"""What the examples share: speech to train on, an encoder, a training loop."""

import torch

# Their tensors are small: several threads would wait for one another more
# than they work.
torch.set_num_threads(1)
