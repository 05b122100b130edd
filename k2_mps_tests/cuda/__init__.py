"""k2 with the series on an NVIDIA GPU: `k2mps cuda --prepare` copies this
folder's other files to where there is one."""
