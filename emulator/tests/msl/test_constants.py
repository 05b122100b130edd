"""Tests the constants, the limits of numbers and the type traits of Metal's standard library."""

import math

import numpy as np


def test_constants(evaluate):
    names = {
        "M_PI_F": math.pi,
        "M_SQRT2_F": math.sqrt(2),
        "FLT_MAX": 3.4028234663852886e38,
        "FLT_EPSILON": 2.0**-23,
        "HUGE_VALF": math.inf,
        "-INFINITY": -math.inf,
        "NAN": math.nan,
        "float(INT_MAX)": 2.0**31,
        "numeric_limits<float>::max()": 3.4028234663852886e38,
        "numeric_limits<float>::lowest()": -3.4028234663852886e38,
        "numeric_limits<float>::infinity()": math.inf,
        "numeric_limits<half>::epsilon()": 2.0**-10,
        "numeric_limits<int>::min()": -(2.0**31),
        "numeric_limits<uchar>::max()": 255,
        "numeric_limits<ulong>::max()": 2.0**64,
        "1.5h + 2.25H": 3.75,
        "1e3": 1000,
        "0x1p4f": 16,
    }
    expected = np.array(list(names.values())).astype(np.float32)
    np.testing.assert_array_equal(evaluate(list(names)), expected)


def test_type_traits(metal):
    metal.compile(
        """
static_assert(is_same<int, int32_t>::value && !is_same_v<int, uint>, "");
static_assert(is_floating_point_v<half> && is_integral_v<ushort>, "");
static_assert(is_signed_v<char> && !is_signed_v<ulong>, "");
template <typename T, typename = enable_if_t<is_integral<T>::value>>
T only_integers(T x) { return x; }
static_assert(is_same_v<decltype(only_integers(1u)), uint>, "");
static_assert(true_type::value && !false_type::value, "");
static_assert(is_scalar_v<device int *> && is_scalar_v<mem_flags> && !is_scalar_v<float2>, "");
"""
    )
