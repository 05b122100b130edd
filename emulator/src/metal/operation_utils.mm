// The functions of <ATen/native/mps/OperationUtils.h> and MPSProfiler.h, which
// extensions include.  Functions that need a graph raise an error.
#include <ATen/mps/MPSProfiler.h>
#include <ATen/native/mps/OperationUtils.h>
#include <c10/util/StringUtil.h>

#include <cstring>

namespace at::native::mps {

namespace {

// The names of a dtype in Metal, in MPS and in torch's keys.
struct TypeNames {
  ScalarType dtype;
  MPSDataType mps;
  const char *metal;
  const char *key;
  const char *short_key;
};

constexpr TypeNames kTypes[] = {
    {kFloat, MPSDataTypeFloat32, "float", "Float32", "f32"},
    {kHalf, MPSDataTypeFloat16, "half", "Float16", "f16"},
    {kBFloat16, MPSDataTypeBFloat16, "bfloat", "BFloat16", "bf16"},
    {kInt, MPSDataTypeInt32, "int", "Int32", "i32"},
    {kLong, MPSDataTypeInt64, "long", "Int64", "i64"},
    {kShort, MPSDataTypeInt16, "short", "Int16", "i16"},
    {kChar, MPSDataTypeInt8, "char", "Int8", "i8"},
    {kByte, MPSDataTypeUInt8, "uchar", "UInt8", "u8"},
    {kUInt16, MPSDataTypeUInt16, "ushort", "UInt16", "u16"},
    {kUInt32, MPSDataTypeUInt32, "uint", "UInt32", "u32"},
    {kUInt64, MPSDataTypeUInt64, "ulong", "UInt64", "u64"},
    {kBool, MPSDataTypeBool, "bool", "Bool", "b8"},
    {kComplexHalf, MPSDataTypeComplexFloat16, "half2", "ComplexFloat16", "c16"},
    {kComplexFloat, MPSDataTypeComplexFloat32, "float2", "ComplexFloat32",
     "c32"},
};

const TypeNames *Find(ScalarType dtype) {
  for (const TypeNames &type : kTypes)
    if (type.dtype == dtype) return &type;
  return nullptr;
}

// The dtype in MPS of a number of the host: a double becomes a float.
ScalarType AsScalar(ScalarType dtype) {
  if (dtype == kDouble) return kFloat;
  return dtype == kComplexDouble ? kComplexFloat : dtype;
}

[[noreturn]] void NeedsGraph(const char *function) {
  C10_THROW_ERROR(
      NotImplementedError,
      std::string("at::native::mps::") + function +
          " needs MPSGraph or MPSNDArray, parts of Apple's closed frameworks "
          "that the emulator does not have. Use a Metal kernel or an aten "
          "operator, or test this function on a Mac.");
}

[[noreturn]] void NeedsTorchsKernels(const char *function) {
  C10_THROW_ERROR(
      NotImplementedError,
      std::string("at::native::mps::") + function +
          " runs torch's own Metal kernels, which the emulator does not have: "
          "it carries out aten operators with the CPU's kernels. Call the aten "
          "operator, or a kernel of your own with MetalKernelFunction.");
}

MPSShape *ShapeOf(IntArrayRef sizes) {
  NSMutableArray<NSNumber *> *shape =
      [NSMutableArray arrayWithCapacity:sizes.size()];
  for (int64_t size : sizes) [shape addObject:[NSNumber numberWithLong:size]];
  return shape;
}

}  // namespace

MPSDataType getMPSDataType(ScalarType scalar_type) {
  const TypeNames *type = Find(scalar_type);
  if (type) return type->mps;
  TORCH_CHECK_TYPE(scalar_type != kDouble,
                   "Cannot convert a float64 Tensor to MPS as the MPS "
                   "framework doesn't support float64. Please use float32 "
                   "instead.");
  TORCH_CHECK_TYPE(
      false, "Trying to convert ", scalar_type,
      " to the MPS backend but it does not have support for that dtype.");
}

MPSDataType getMPSScalarType(ScalarType scalar_type) {
  return getMPSDataType(AsScalar(scalar_type));
}

MPSScalar getMPSScalar(const Scalar &scalar, ScalarType type) {
  MPSScalar result;
  type = AsScalar(type);
  result.type = type;
  switch (type) {
    case kFloat:
      result.value.f = scalar.to<float>();
      break;
    case kHalf:
      result.value.h = scalar.to<Half>();
      break;
    case kBFloat16:
      result.value.bf16 = scalar.to<BFloat16>();
      break;
    case kBool:
      result.value.b = scalar.to<bool>();
      break;
    case kComplexHalf:
      result.value.ch = scalar.to<c10::complex<Half>>();
      break;
    case kComplexFloat:
      result.value.cf = scalar.to<c10::complex<float>>();
      break;
    case kUInt16:
    case kUInt32:
    case kUInt64:
      result.value.u = scalar.to<uint64_t>();
      break;
    case kByte:
    case kChar:
    case kShort:
    case kInt:
    case kLong:
      result.value.i = scalar.to<int64_t>();
      break;
    default:
      TORCH_CHECK(false, "Unsupported scalar type '", type,
                  "' on MPS backend.");
  }
  result.size = c10::elementSize(type);
  return result;
}

std::string getMPSTypeString(ScalarType scalar_type, bool short_name) {
  const TypeNames *type = Find(AsScalar(scalar_type));
  if (!type) return "Undefined";
  return short_name ? type->short_key : type->key;
}

std::string scalarToMetalTypeString(const ScalarType &scalar_type) {
  const TypeNames *type = Find(scalar_type);
  TORCH_CHECK(type, "Undefined type ", scalar_type);
  return type->metal;
}

NSArray<NSNumber *> *getTensorAxes(const TensorBase &t) {
  return getTensorAxes(t.sizes(), std::nullopt);
}

NSArray<NSNumber *> *getTensorAxes(const IntArrayRef &sizes,
                                   OptionalIntArrayRef dim) {
  if (dim.has_value() && !dim->empty()) return ShapeOf(*dim);
  std::vector<int64_t> all(sizes.size());
  for (size_t axis = 0; axis < all.size(); ++axis) all[axis] = axis;
  return ShapeOf(all);
}

MPSShape *getMPSShape(IntArrayRef sizes, c10::MemoryFormat memory_format) {
  if (memory_format == MemoryFormat::ChannelsLast) {
    TORCH_CHECK(sizes.size() == 4,
                "ChannelsLast memory format must have 4 dimensions!");
    return ShapeOf({sizes[0], sizes[2], sizes[3], sizes[1]});
  }
  if (memory_format == MemoryFormat::ChannelsLast3d) {
    TORCH_CHECK(sizes.size() == 5,
                "ChannelsLast3d memory format must have 5 dimensions!");
    return ShapeOf({sizes[0], sizes[2], sizes[3], sizes[4], sizes[1]});
  }
  // MPS has no shape without dimensions.
  return sizes.empty() ? ShapeOf({1}) : ShapeOf(sizes);
}

MPSShape *getMPSShape(const TensorBase &t, c10::MemoryFormat memory_format) {
  return getMPSShape(t.sizes(), memory_format);
}

std::string getMPSShapeString(MPSShape *shape) {
  std::string text;
  for (NSUInteger i = 0; i < [shape count]; ++i)
    text += std::to_string([[shape objectAtIndex:i] longValue]) + ",";
  return text;
}

std::string getTensorsStringKey(const TensorList &tensors, bool short_dtype,
                                bool exclude_shape) {
  std::string key;
  for (const Tensor &tensor : tensors) {
    key += ':';
    if (!tensor.defined()) {
      key += "Undefined";
      continue;
    }
    key += getMPSTypeString(tensor.scalar_type(), short_dtype) + '[';
    if (tensor.dim() == 0)
      key += "Scalar";
    else
      key += exclude_shape ? "-1" : getArrayRefString(tensor.sizes());
    key += ']';
  }
  return key;
}

std::string getArrayRefString(const IntArrayRef s) { return c10::Join(",", s); }

std::string to_hex_key(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return fmt::format("{:x}", bits);
}

std::string get_mem_format_string(c10::MemoryFormat memory_format) {
  switch (memory_format) {
    case MemoryFormat::Preserve:
      return "Preserve";
    case MemoryFormat::Contiguous:
      return "Contiguous";
    case MemoryFormat::ChannelsLast:
      return "ChannelsLast";
    case MemoryFormat::ChannelsLast3d:
      return "ChannelsLast3d";
    default:
      TORCH_CHECK(false, "Invalid memory format", memory_format);
  }
}

Tensor gatherViewTensor(const Tensor &src, Tensor &dst) {
  return dst.defined() ? dst.copy_(src) : src.contiguous();
}

Tensor &scatterViewTensor(const Tensor &src, Tensor &output) {
  return output.copy_(src);
}

Tensor getTensorView(const Tensor &t, MPSShape *shape) {
  std::vector<int64_t> sizes;
  for (NSUInteger i = 0; i < [shape count]; ++i)
    sizes.push_back([[shape objectAtIndex:i] longValue]);
  return t.view(sizes);
}

// MPSGraph counts elements with 32 bits.
bool isTooLargeForMPSGraph(const Tensor &tensor, bool) {
  return tensor.numel() > std::numeric_limits<int32_t>::max();
}

void resize_tensor(Tensor *output) { output->resize_(output->sizes()); }

Tensor wrapped_scalar_tensor_mps(const Scalar &scalar, const Device device) {
  const ScalarType dtype = AsScalar(scalar.type());
  Tensor tensor = at::full({}, scalar, TensorOptions(device).dtype(dtype));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

size_t compute_storage_numel_distance(const TensorBase &t) {
  if (t.numel() == 0) return 0;
  size_t distance = 1;
  for (int64_t i = 0; i < t.dim(); ++i)
    distance += (t.size(i) - 1) * t.stride(i);
  return distance;
}

// ---- functions that need graphs

#define NEEDS_GRAPH(...) \
  __VA_ARGS__ { NeedsGraph(__func__); }
NEEDS_GRAPH(void runMPSGraph(MPSStream *, MPSGraph *, NSDictionary *,
                             NSDictionary *))
NEEDS_GRAPH(MPSGraphTensor *castToIHFTypes(MPSGraph *, MPSGraphTensor *,
                                           const TensorBase &))
NEEDS_GRAPH(MPSGraphTensor *castFromIHFTypes(MPSGraph *, MPSGraphTensor *,
                                             const TensorBase &))
NEEDS_GRAPH(MPSNDArray *getStridedMPSNDArray(const TensorBase &, MPSNDArray *))
NEEDS_GRAPH(MPSNDArray *getMPSNDArray(const TensorBase &, const IntArrayRef &,
                                      const IntArrayRef &))
NEEDS_GRAPH(MPSNDArray *getMPSNDArray(const TensorBase &, MPSShape *,
                                      MPSShape *))
NEEDS_GRAPH(Placeholder::Placeholder(MPSGraphTensor *, MPSNDArray *))
NEEDS_GRAPH(Placeholder::Placeholder(MPSGraphTensor *, const Tensor &,
                                     MPSShape *, bool, MPSDataType, bool))
NEEDS_GRAPH(MPSGraphTensor *convertNHWCtoNCHW(MPSGraph *, MPSGraphTensor *))
NEEDS_GRAPH(MPSGraphTensor *castMPSTensor(MPSGraph *, MPSGraphTensor *,
                                          ScalarType))
NEEDS_GRAPH(MPSGraphTensor *castMPSTensor(MPSGraph *, MPSGraphTensor *,
                                          MPSDataType))
NEEDS_GRAPH(MPSGraphTensorData *getMPSGraphTensorData(MPSGraph *, MPSStream *,
                                                      const TensorBase &))
NEEDS_GRAPH(MPSGraphTensorData *getMPSGraphTensorFromScalar(MPSStream *,
                                                            MPSScalar &))
NEEDS_GRAPH(MPSGraph *make_mps_graph())
NEEDS_GRAPH(MPSGraphTensor *mpsGraphUnrankedPlaceHolder(MPSGraph *,
                                                        MPSDataType))
NEEDS_GRAPH(MPSGraphTensor *mpsGraphRankedPlaceHolder(MPSGraph *, MPSDataType,
                                                      MPSShape *))
NEEDS_GRAPH(MPSGraphTensor *mpsGraphRankedPlaceHolder(MPSGraph *,
                                                      const TensorBase &))
NEEDS_GRAPH(MPSGraphTensor *mpsGraphScalarPlaceHolder(MPSGraph *, MPSDataType))
NEEDS_GRAPH(MPSGraphTensor *mpsGraphScalarPlaceHolder(MPSGraph *,
                                                      const Scalar &))
NEEDS_GRAPH(MPSGraphTensor *log1p(MPSGraph *, MPSGraphTensor *))
#undef NEEDS_GRAPH

MPSKernelCache *MPSKernelCache::_instance_cache = nullptr;
MPSGraphCache *MPSGraphCache::_instance_cache = nullptr;
// Profiling is always off.
void MPSGraphCache::profileCachedGraph(const CacheEntry &) const {}

// ---- functions that run torch's kernels

Tensor randperm_argsort_lowbits_metal(const Tensor &, int, Tensor &) {
  NeedsTorchsKernels(__func__);
}
id<MTLBuffer> generateKernelDataOffsets(id<MTLComputeCommandEncoder>,
                                        const TensorIteratorBase &, bool) {
  NeedsTorchsKernels(__func__);
}
MetalShaderLibrary &MetalShaderLibrary::getBundledLibrary() {
  NeedsTorchsKernels("MetalShaderLibrary::getBundledLibrary");
}
void MetalShaderLibrary::exec_unary_kernel(TensorIteratorBase &,
                                           const std::string &,
                                           const std::optional<Scalar>,
                                           const std::optional<ScalarType>,
                                           const std::optional<uint32_t>) {
  NeedsTorchsKernels("MetalShaderLibrary::exec_unary_kernel");
}
void MetalShaderLibrary::exec_unary_kernel_raw(const std::string &, MTLBuffer_t,
                                               uint32_t, ScalarType,
                                               MTLBuffer_t, uint32_t,
                                               ScalarType, uint32_t,
                                               const std::optional<uint32_t>) {
  NeedsTorchsKernels("MetalShaderLibrary::exec_unary_kernel_raw");
}
void MetalShaderLibrary::exec_binary_kernel(TensorIteratorBase &,
                                            const std::string &,
                                            const std::optional<Scalar>,
                                            const std::optional<ScalarType>,
                                            const std::optional<ScalarType>,
                                            const std::optional<uint32_t>) {
  NeedsTorchsKernels("MetalShaderLibrary::exec_binary_kernel");
}
void MetalShaderLibrary::exec_ternary_kernel(TensorIteratorBase &,
                                             const std::string &) {
  NeedsTorchsKernels("MetalShaderLibrary::exec_ternary_kernel");
}

}  // namespace at::native::mps

// ---- the profiler, which is off, as on a Mac by default. mps_emulator.trace()
// records the same.

namespace at::mps {

namespace Profiler {

MPSProfiler::MPSProfiler() = default;
MPSProfiler::~MPSProfiler() = default;
uint64_t MPSProfiler::beginProfileKernel(const void *, const std::string &,
                                         bool) {
  return 0;
}
uint64_t MPSProfiler::beginProfileKernel(const void *, const std::string &,
                                         const TensorList &) {
  return 0;
}
void MPSProfiler::beginProfileGPUInterval(const void *) {}
void MPSProfiler::endProfileKernel(const void *, SyncType) {}
bool MPSProfiler::isCaptureEnabled() const { return false; }
bool MPSProfiler::isCapturing() const { return false; }

}  // namespace Profiler

Profiler::MPSProfiler &getMPSProfiler() {
  static Profiler::MPSProfiler profiler;
  return profiler;
}

}  // namespace at::mps
