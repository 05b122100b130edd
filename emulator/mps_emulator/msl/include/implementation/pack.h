// <metal_pack>: normalized integers in one word.
#pragma once

namespace __msl {

// One field of a packed word: `bits` bits from `shift` on.
template <uint bits>
struct normalized {
  static float from_unsigned(uint word, uint shift) {
    constexpr uint largest = (1u << bits) - 1;
    return (float)(word >> shift & largest) / (float)largest;
  }
  static float from_signed(uint word, uint shift) {
    constexpr int largest = (1 << (bits - 1)) - 1;
    int value = (int)(word << (32 - bits - shift)) >> (32 - bits);
    return metal::max((float)value / (float)largest, -1.0f);
  }
  static uint to_unsigned(float x, uint shift) {
    constexpr uint largest = (1u << bits) - 1;
    return (uint)metal::rint(metal::saturate(x) * (float)largest) << shift;
  }
  static uint to_signed(float x, uint shift) {
    constexpr int largest = (1 << (bits - 1)) - 1;
    int value = (int)metal::rint(metal::clamp(x, -1.0f, 1.0f) * (float)largest);
    return ((uint)value & ((1u << bits) - 1)) << shift;
  }
};

MSL_INLINE float linear_from_srgb(float x) {
  return x <= 0.04045f ? x / 12.92f : metal::pow((x + 0.055f) / 1.055f, 2.4f);
}
MSL_INLINE float srgb_from_linear(float x) {
  x = metal::saturate(x);
  return x < 0.0031308f ? 12.92f * x
                        : 1.055f * metal::pow(x, 1.0f / 2.4f) - 0.055f;
}

}  // namespace __msl

namespace metal {

#define MSL_PACK_PAIR(kind, sign)                                        \
  MSL_INLINE float4 unpack_##kind##4x8_to_float(uint x) {                \
    using field = __msl::normalized<8>;                                  \
    return float4{field::from_##sign(x, 0), field::from_##sign(x, 8),    \
                  field::from_##sign(x, 16), field::from_##sign(x, 24)}; \
  }                                                                      \
  MSL_INLINE half4 unpack_##kind##4x8_to_half(uint x) {                  \
    return __msl::make<half4>(unpack_##kind##4x8_to_float(x));           \
  }                                                                      \
  MSL_INLINE float2 unpack_##kind##2x16_to_float(uint x) {               \
    using field = __msl::normalized<16>;                                 \
    return float2{field::from_##sign(x, 0), field::from_##sign(x, 16)};  \
  }                                                                      \
  MSL_INLINE half2 unpack_##kind##2x16_to_half(uint x) {                 \
    return __msl::make<half2>(unpack_##kind##2x16_to_float(x));          \
  }                                                                      \
  MSL_INLINE uint pack_float_to_##kind##4x8(float4 x) {                  \
    using field = __msl::normalized<8>;                                  \
    return field::to_##sign(x.x, 0) | field::to_##sign(x.y, 8) |         \
           field::to_##sign(x.z, 16) | field::to_##sign(x.w, 24);        \
  }                                                                      \
  MSL_INLINE uint pack_half_to_##kind##4x8(half4 x) {                    \
    return pack_float_to_##kind##4x8(__msl::make<float4>(x));            \
  }                                                                      \
  MSL_INLINE uint pack_float_to_##kind##2x16(float2 x) {                 \
    using field = __msl::normalized<16>;                                 \
    return field::to_##sign(x.x, 0) | field::to_##sign(x.y, 16);         \
  }                                                                      \
  MSL_INLINE uint pack_half_to_##kind##2x16(half2 x) {                   \
    return pack_float_to_##kind##2x16(__msl::make<float2>(x));           \
  }
MSL_PACK_PAIR(unorm, unsigned)
MSL_PACK_PAIR(snorm, signed)
#undef MSL_PACK_PAIR

MSL_INLINE float4 unpack_unorm4x8_srgb_to_float(uint x) {
  float4 v = unpack_unorm4x8_to_float(x);
  return float4{__msl::linear_from_srgb(v.x), __msl::linear_from_srgb(v.y),
                __msl::linear_from_srgb(v.z), v.w};
}
MSL_INLINE half4 unpack_unorm4x8_srgb_to_half(uint x) {
  return __msl::make<half4>(unpack_unorm4x8_srgb_to_float(x));
}
MSL_INLINE uint pack_float_to_srgb_unorm4x8(float4 x) {
  return pack_float_to_unorm4x8(float4{__msl::srgb_from_linear(x.x),
                                       __msl::srgb_from_linear(x.y),
                                       __msl::srgb_from_linear(x.z), x.w});
}
MSL_INLINE uint pack_half_to_srgb_unorm4x8(half4 x) {
  return pack_float_to_srgb_unorm4x8(__msl::make<float4>(x));
}

}  // namespace metal
