"""Runs apple_kernels.py for a sample of the kernels."""

import apple_kernels
import pytest
from mps_emulator.msl import native

# {group: kernels that have barriers, simdgroup functions, conversions or rounding of each type}.
SAMPLE = {
    "unary": ["v_Sigmoidfloat16float16", "v_Expm1bfloat16bfloat16", "v_Signint8int8"],
    "binary": ["vv_LogAddExpbfloat16", "vv_Powerint32", "vv_Remainderfloat32"],
    "softmax": ["block_softmax_precise_bfloat16"],
    "sort": ["carg_block_sort_float32_uint32_bn128_tn4"],
    "scan": ["contig_scan_reverse_exclusive_sum_float32_float32"],
    "strided_scan": [
        "strided_scan_inclusive_sum_int32_int32",
        "strided_scan_exclusive_max_float32_float32",
    ],
    "reduce": ["all_reduce_sumint64", "row_reduce_simple_maxfloat16"],
    "special_math": ["bessel_j0_forward_dense_bfloat_bfloat", "trigamma_dense_half_half"],
    "sort_block": ["sort_block_float_tptg32"],
    "radix_count": ["radix_count_float_8bit"],
    "ctc": ["ctc_loss_backward_collect_half_int_int32_t", "ctc_loss_float_long_int64_t"],
}


@pytest.mark.parametrize("title", SAMPLE)
def test_the_sample_is_the_same_to_the_bit(title, monkeypatch):
    monkeypatch.setenv("MPS_EMULATOR_SCHEDULE", "forward")  # restored after the test
    group = apple_kernels.GROUPS[title]()
    try:
        found = list(apple_kernels.compare(native.Metal(), group, SAMPLE[title]))
    except apple_kernels.Unavailable as reason:
        pytest.skip(str(reason))
    assert len(found) == len(SAMPLE[title]) * len(apple_kernels.SCHEDULES)
    assert [name for name, _, different in found if different] == []


def test_every_kernel_has_arguments():
    count = sum(len(make().kernels) for make in apple_kernels.GROUPS.values())
    assert count >= 768
