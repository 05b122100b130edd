"""Tests constructors, conversions, components, comparisons and layouts of vectors."""

import numpy as np
import pytest
from metal import floats

# Metal functions and types that the tested expressions use.
DECLARATIONS = """
float4 pick(float4 a, float4 b) {
  bool4 m = a < b;
  bool4 n = !m || (a == 1.0f);
  bool4 o = (m && n) ^ bool4(false, true, false, true);
  o.x = o.y;
  o[2] = m.x;
  return float4(m) + 10 * float4(n) + 100 * float4(o) + 1000 * float4(m == n);
}
int4 six(bool4) { return int4(6); }
vec<bool, 2> two(vec<bool, 2> v) { return vec<bool, 2>(v.y, v.x); }
typedef float4 Color;
using Pair = vec<float, 2>;
template <typename T> using Quad = vec<T, 4>;
template <typename T> struct Traits { using Vector = vec<T, 3>; };
template <typename T> T twice(T v) { return T(2) * v; }
template <typename T> T joined(float a, float b) { return T(a, b); }
template <typename T> typename Traits<T>::Vector three(T a) {
  return typename Traits<T>::Vector(a, a, a);
}
template <typename T, int N> T first(vec<T, N> v) { return v[0]; }
typedef half Small;
typedef Color Paint;
typedef device float4 *Rows;
float4 zeros() { return float4(0); }
using Sum = decltype(zeros());
template <typename T> struct Row { typedef T value; value of(float a) { return value(a, 2); } };
// The rewriter knows a parameter by its name alone, so no other template has these names.
template <class AnyClass> AnyClass of_class(float a, float b) { return AnyClass(a, b); }
template <typename... Every> float sum_of(float a) { return (0 + ... + Every(a, a).y); }
template <typename T> float third(T a) {
  typedef typename Traits<T>::Vector Three;
  return Three(a, 1, a + 1).z;
}
struct Pairs { template <typename T> using Of = vec<T, 2>; };
template <typename P> float second() { return typename P::template Of<float>(5, 6).y; }
// A member and a variable may have the name of a type or of a namespace.
struct Named { float x; float Color(float y) { return x * y; } };
float members() {
  Named named = {3};
  thread Named *p = &named;
  return named.Color(4) + p->Color(5);
}
float names() {
  float metal = 1;
  metal = float2(2, 3).y;
  return metal;
}
float references() {
  typedef thread float4 &Reference;
  float4 v(1);
  Reference r(v);
  r.y = 2;
  return v.y;
}
// The parameters of these operators have no names, so they look like casts.
struct Operators {
  float operator[](half) const { return 1; }
  float operator()(half2) const { return 2; }
  float operator>(half4) const { return 3; }
  operator half2() const { return half2(4, 5); }
};
float operators() {
  Operators o;
  half2 v = o;
  return o[1.0h] + o(half2(1)) + (o > half4(1)) + v.y;
}
template <typename T> T braced(float a) { return T{a, 2}; }
struct Both { float a, b; };
auto result_type_last(float a) -> float2 { return float2(a, 3); }
float initializers(int n) {
  thread float2 a(1, 2), b(3, 4);
  constexpr half2 c(5, 6);
  if (n == 0) half2(7, 8); else half2(7, 8);
  do half2(7, 8); while (n == 0);
  switch (n) {
    case 1:
      float2 d(9, 10);
      return a.y + b.y + c.y + d.y;
  }
  return 0;
}
float2 after_operators() {
  int2 v(3, 4), w[2] = {v, v};
  thread int2 *p = w;
  half2 a = (half2)-v, b = (half2)+v, c = (half2)~v, d = (half2)++v, e = (half2)--v;
  half2 f = (half2)v++, g = (half2)p->yx, h = (half2)w[1], i = (half2)::metal::abs(-v);
  half2 j = static_cast<decltype(half2())>(v), k = (half2)!bool2(false);
  return float2(a + 2 * b + c + 10 * d + e + 20 * f + 30 * g + h + i + j + k);
}
float casts(float x) {
  float4 a = (float4)*(thread float *)&x, b = (float4)(const int)x;
  return a.w + b.x + ((half4)(float4 const)a).y;
}
float locals() {
  float4 a(1, 2, 3, 4);
  const float2 b(a.zw);
  float3 c(a.xy, 7), d = float3(1);
  thread float4 *p = &a;
  (*p).y = 20;
  float sum = 0;
  for (float2 v(0, 1); v.x < 3; v += 1) sum += v.y;
  float4 many[2] = {float4(1), float4(2, 3, 4, 5)};
  return a.y + b.y + c.z + d.x + sum + many[1].w;
}
"""

# {what is tested: {expression: its value}}.  In the expressions, x is float4(1, 2, 3, 4) and y is
# float4(5, 6, 7, 8).
VALUES = {
    "constructors": {
        "float4(7).w": 7,
        "float4(x.xy, y.zw).z": 7,
        "float4(x.xyz, 9).w": 9,
        "float4(9, x.xyz).y": 1,
        "float4(x.x, y.xy, 3).z": 6,
        "float3(x.xy, 8).z": 8,
        "float2(x.w, y.w).x": 4,
        "metal::float3(1, 2, 3).y": 2,
        "vec<float, 3>(1, 2, 3).z": 3,
        "metal::vec<int, 2>(1.9f, -1.9f).y": -1,
        "float4{1, 2, 3, 4}.z": 3,
        "float4{x.zw, 2, 3}.y": 4,
        "vec<float, 4>{x.zw, 2, 3}.y": 4,
        "int4(x * 1.5f).y": 3,
        "float4(int4(1, 2, 3, 4)).w": 4,
        "half4(x).z": 3,
        "uchar4(300, 1, 2, 3).x": 44,
        "uint2(x.zw).y": 4,
        "float4(half2(1, 2), short2(3, 4)).w": 4,
        "bool4(1, 0, 2, 0).z": 1,
        "float4(bool4(true, false, true, false)).z": 1,
        "int4(true).w": 1,
        "float3().x": 0,
    },
    "conversions": {
        "((int4)(x * 1.5f)).w": 6,
        "((float4)int4(1, 2, 3, 4)).z": 3,
        "((float4)int4(5).xyxy).x": 5,
        "static_cast<half4>(x).y": 2,
        "static_cast<int>(x.y * 1.6f)": 3,
        "((float2)(half2)x.zw).y": 4,
        "((float4)2).w": 2,
        "as_type<int>(1.0f) == 0x3f800000": 1,
        "as_type<float4>(as_type<uint4>(x)).z": 3,
        "as_type<uchar4>(0x04030201u).w": 4,
        "as_type<half2>(0x3c004000u).x": 2,
        "as_type<float3>(x).z": 3,
    },
    "components": {
        "x.wzyx.x": 4,
        "x.xxyy.w": 2,
        "x.rgba.b": 3,
        "x.bgr.x": 3,
        "x[2]": 3,
        "float4(x)[int(y.x) - 4]": 2,
        "x.yx.y": 1,
    },
    # In MSL, a comparison that is true gives 1.  A comparison of clang's vectors gives -1.
    "comparisons are boolean": {
        "float4(x < y - 2).x": 1,
        "float4(x > y).x": 0,
        "int4(x == x).z": 1,
        "uint2(x.xy != y.xy).y": 1,
        "float4((x < 3) && (y > 5)).y": 1,
        "float4((x < 3) || (y > 7)).w": 1,
        "float4(x < float4{x.zw, 2, 3}).y": 1,
        "float4(x <= 2).y": 1,
        "float4(x >= 2).y": 1,
        "float4(!(x < 3)).y": 0,
        "float4(!(x < 3)).w": 1,
        "any(x > 3)": 1,
        "any(x > 4)": 0,
        "all(x > 0)": 1,
        "all(x > 1)": 0,
        "select(x, y, x > 2).z": 7,
        "select(x, y, x > 2).y": 2,
        "select(1.0f, 2.0f, true)": 2,
        "select(int4(1), int4(2), x > 3).w": 2,
        "float4(isnan(x)).x": 0,
        "bool4(x > 2).w": 1,
        "float(bool(x.x > 0))": 1,
        "bool((x < y).x)": 1,
        "float4((x < 3)).y": 1,
    },
    # A constructor whose argument is no comparison, although the argument contains "<" or ">".
    "no comparisons": {
        "int4(x.x < 2 ? int4(6) : int4(8)).x": 6,
        "float2(x.x < 2, 7).y": 7,
        "int4(static_cast<int4>(x)).y": 2,
        "int4(six(x < 3)).w": 6,
    },
    "boolean vectors": {
        # In pick(), m is 1 1 0 1 and n is 1 0 1 0.  (m && n) ^ 0101 is 1 1 0 1.  The assignments
        # o.x = o.y and o[2] = m.x change o to 1 1 1 1.
        "pick(x, float4(2, 3, 3, 5)).x": 1111,
        "pick(x, float4(2, 3, 3, 5)).y": 101,
        "pick(x, float4(2, 3, 3, 5)).z": 110,
        "pick(x, float4(2, 3, 3, 5)).w": 101,
        "two(bool2(true, false)).y": 1,
        "any(bool3(false)) ? 1 : 2": 2,
        "all(bool3(true)) ? 1 : 2": 1,
    },
    "type names of programs": {
        "Color(1, 2, 3, 4).z": 3,
        "Pair(x.z, 8).y": 8,
        "Quad<float>(1, 2, 3, 4).w": 4,
        "twice(x).w": 8,
        "twice(3.0f)": 6,
        "joined<Pair>(1, 2).y": 2,
        "three(4.0f).z": 4,
        "first(y)": 5,
        "first(int2(3, 4))": 3,
        "((Color)int4(1, 2, 3, 4)).y": 2,
        "Paint(1, 2, 3, 4).w": 4,
        "float(Small(bfloat(1.5f)))": 1.5,
        "Row<float2>().of(1).y": 2,
        "of_class<Pair>(3, 4).y": 4,
        "sum_of<float2, half2>(3)": 6,
        "third(4.0f)": 5,
        "second<Pairs>()": 6,
        "members()": 27,
        "names()": 3,
        "references()": 2,
        "Sum(3, 4, 5, 6).w": 6,
        "((Rows)(out + 4))[-1].x == out[0] ? 1 : 2": 1,
        "((::Color)int4(1, 2, 3, 4)).z": 3,
        "((::metal::float4)int4(1, 2, 3, 4)).w": 4,
        "casts(1.5f)": 4,
        "operators()": 11,
        "braced<Both>(1).b": 2,
        "result_type_last(1).y": 3,
        "initializers(1)": 22,
        "after_operators().x": -3 + 6 - 4 + 40 + 3 + 60 + 120 + 3 + 4 + 4 + 1,
    },
    "local vectors": {"locals()": 20 + 4 + 7 + 1 + 6 + 5},
}


@pytest.fixture(scope="module")
def values(evaluate):
    """The values of all expressions in VALUES, {expression: value}."""
    expressions = [text for cases in VALUES.values() for text in cases]
    return dict(zip(expressions, evaluate(expressions, declarations=DECLARATIONS)))


@pytest.mark.parametrize("what", VALUES)
def test_values(values, what):
    assert {text: values[text] for text in VALUES[what]} == VALUES[what]


def test_declarators_that_look_like_constructors(metal):
    metal.compile("""
using Function = float4 (*)(float4);
template <typename T> struct Rows {};
template <> struct Rows<float4 (&)[4]> { int count; };
""")


def test_assignment_to_components(metal):
    source = """
kernel void k(device float4 *out [[buffer(0)]]) {
  float4 v(0);
  v.xw = float2(5, 6);
  v.wx = float2(7, 8);
  v[1] = 9;
  v.z += 2.5f;
  out[0] = v;
  out[1].yz = v.xy;
  out[2] = 1;
  out[2].x++;
  out[2] *= 3;
  float4 w = {1, 2, 3, 4};
  out[3] = -w * 2 + w.x - float4(0.5f) / w;
  int4 n = int4(w) << 2 | 1;
  out[4] = float4(n % 5);
}
"""
    out = np.zeros((5, 4), np.float32)
    metal.run(source, "k", [out], 1, 1)
    assert out[0].tolist() == [8, 9, 2.5, 7]
    assert out[1].tolist() == [0, 8, 9, 0]
    assert out[2].tolist() == [6, 3, 3, 3]
    w = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_allclose(out[3], -w * 2 + 1 - 0.5 / w, rtol=1e-6)
    assert out[4].tolist() == [0, 4, 3, 2]


LAYOUT = {
    "bool": (1, 1), "char": (1, 1), "uchar": (1, 1), "short": (2, 2),
    "ushort": (2, 2), "int": (4, 4), "uint": (4, 4), "long": (8, 8),
    "ulong": (8, 8), "size_t": (8, 8), "half": (2, 2), "bfloat": (2, 2),
    "float": (4, 4),
    "bool2": (2, 2), "bool3": (4, 4), "bool4": (4, 4),
    "char2": (2, 2), "char3": (4, 4), "uchar4": (4, 4),
    "short2": (4, 4), "ushort3": (8, 8), "short4": (8, 8),
    "int2": (8, 8), "uint3": (16, 16), "int4": (16, 16),
    "long2": (16, 16), "ulong3": (32, 32), "long4": (32, 32),
    "half2": (4, 4), "half3": (8, 8), "half4": (8, 8),
    "bfloat2": (4, 4), "bfloat3": (8, 8), "bfloat4": (8, 8),
    "float2": (8, 8), "float3": (16, 16), "float4": (16, 16),
    "atomic_int": (4, 4), "atomic_bool": (1, 1),
}  # fmt: skip


def test_layouts_of_types(metal):
    metal.compile(
        "".join(
            f"static_assert(sizeof({name}) == {size} && alignof({name}) == {alignment}, "
            f'"{name}");\n'
            for name, (size, alignment) in LAYOUT.items()
        )
    )


def test_layout_of_structures(metal):
    """Metal's compiler and the host's compiler give a structure the same layout."""
    offsets = dict(flag=0, s=2, p=4, v=16, h=32, inner=48, flags=112, l=120, c=128, n=132)
    source = """
struct Inner { float3 a; float b; };
struct Outer {
  bool flag; short s; float p[3]; float3 v; half2 h; Inner inner[2]; bool3 flags; long l;
  alignas(16) uchar c; uint n[3];
};
static_assert(sizeof(Inner) == 32 && sizeof(Outer) == 144, "");
"""
    for name, offset in offsets.items():
        source += f'static_assert(__builtin_offsetof(Outer, {name}) == {offset}, "{name}");\n'
    source += """
kernel void k(device Outer *o [[buffer(0)]], constant Outer &c [[buffer(1)]]) {
  o[0] = c;
  o[1] = o[0];
  o[1].v = float3(c.p[0], c.p[1], c.p[2]);
}
"""
    one = np.random.default_rng(0).integers(0, 2, 144, np.uint8)
    out = np.zeros((2, 144), np.uint8)
    metal.run(source, "k", [out, one], 1, 1)
    used = [*range(1), *range(2, 44), *range(48, 60), *range(120, 129), *range(132, 144)]
    assert (out[0, used] == one[used]).all()
    assert (out[1, 16:28] == one[4:16]).all()


def test_arrays(metal):
    source = """
struct Table { array<float, 3> values; };
float total(thread const array<float, 3> &a) {
  float sum = 0;
  for (uint i = 0; i < a.size(); ++i) sum += a[i];
  return sum;
}
kernel void k(device Table *t [[buffer(0)]], constant Table &c [[buffer(1)]]) {
  array<float, 3> local = {1, 2, 3};
  local[1] = c.values[2];
  t[0].values[0] = total(local);
  t[0].values[1] = c.values[1];
}
"""
    t, c = np.zeros(3, np.float32), floats(7, 8, 9)
    metal.run(source, "k", [t, c], 1, 1)
    assert t.tolist() == [13, 8, 0]
