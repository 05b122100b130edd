"""Runs oracle.py for a sample of the operators."""

import pathlib
import subprocess
import sys

# Operators that are most likely to be refused, to give wrong results, to crash or to hang, and
# operators whose CPU kernels lack a dtype (WIDER in oracle.py).
SAMPLE = """
    __getitem__ add addbmm addr argsort as_strided bincount cat ceil cholesky_inverse einsum
    fft.fft histc index_put index_select istft linalg.inv linalg.qr linalg.solve linalg.svd
    log_softmax matmul normal.in_place nn.functional.adaptive_avg_pool2d nn.functional.batch_norm
    nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose3d
    nn.functional.embedding nn.functional.linear nn.functional.max_pool2d
    nn.functional.scaled_dot_product_attention nonzero scatter_reduce.amax softmax sort
    special.bessel_j0 sum unique var where
""".split()


def test_the_sample_has_only_the_listed_differences():
    # oracle.py forks, and this process may have threads.  So oracle.py runs in a new interpreter.
    judged = subprocess.run(
        [sys.executable, str(pathlib.Path(__file__).with_name("oracle.py")), *SAMPLE],
        capture_output=True,
        text=True,
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
