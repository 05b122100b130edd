"""Like those of the suite parity, these tests run on the real device or on the emulated one."""

from k2_mps_tests.parity.conftest import (  # noqa: F401
    in_and_out_agree_with_the_kernels,
    placement,
    pytest_configure,
    pytest_report_header,
    seed,
    waits_without_gil,
)
