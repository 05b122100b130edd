#include "torch/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstring>
#include <sstream>

#include "core/environment.h"
#include "core/export.h"
#include "core/limits.h"
#include "core/stream.h"

namespace mps_emulator {

namespace {

std::atomic<bool> turned_on{false};

constexpr double kDefaultHighWatermarkRatio = 1.7;
constexpr double kMaxHighWatermarkRatio = 2.0;

void ReleaseContext(void *context) {
  ReleaseBuffer(static_cast<Buffer *>(context));
}

void ReleaseNothing(void *) {}

// Returns the buffer of torch's allocator with this data pointer; nullptr for
// any other address.  A Mac's allocator, too, finds only its own buffers.
Buffer *FindTorchBuffer(const void *pointer) {
  Buffer *buffer = FindByPointer(pointer);
  return buffer && buffer->origin == Origin::kTorch ? buffer : nullptr;
}

double HighWatermarkRatioFromEnvironment() {
  const char *ratio = getenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO");
  return ratio ? strtod(ratio, nullptr) : kDefaultHighWatermarkRatio;
}

class Allocator final : public at::mps::IMPSAllocator {
 public:
  Allocator() { setHighWatermarkRatio(HighWatermarkRatioFromEnvironment()); }

  // ---- c10::Allocator
  c10::DataPtr allocate(size_t size) override {
    TORCH_CHECK(!IsLeftOut(),
                "TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns the emulated mps device "
                "off; mps_emulator.load() turns the device on.");
    if (size == 0) return {nullptr, nullptr, &ReleaseNothing, MpsDevice()};
    TORCH_CHECK(size < kMaxBufferLength,
                "Invalid buffer size: ", formatSize(size));
    Buffer *buffer = nullptr;
    if (HasRoomFor(size)) buffer = AllocateBuffer(size, Origin::kTorch);
    if (!buffer) {
      ReleaseCachedBlocks();
      if (HasRoomFor(size)) buffer = AllocateBuffer(size, Origin::kTorch);
    }
    TORCH_CHECK(buffer, "MPS backend out of memory (MPS allocated: ",
                formatSize(GetMemoryStatistics().reserved),
                ", other allocations: ", formatSize(0),
                ", max allowed: ", formatSize(limit_), "). Tried to allocate ",
                formatSize(size),
                " on shared pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to "
                "disable upper limit for memory allocations (may cause system "
                "failure).");
    return MakeDataPtr(buffer);
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void *, const void *, size_t) const override {
    TORCH_CHECK(false, "copy_data is not available for MPS buffers");
  }

  // ---- c10::DeviceAllocator
  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t = {0, 0}) override { ReleaseCachedBlocks(); }

  void recordStream(const c10::DataPtr &, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex) override {
    MemoryStatistics memory = GetMemoryStatistics();
    c10::CachingDeviceAllocator::DeviceStats statistics;
    auto set = [](auto &array, size_t current, size_t peak) {
      array[0].current = static_cast<int64_t>(current);
      array[0].peak = static_cast<int64_t>(peak);
    };
    set(statistics.allocated_bytes, memory.in_use, memory.peak_in_use);
    set(statistics.active_bytes, memory.in_use, memory.peak_in_use);
    set(statistics.reserved_bytes, memory.reserved, memory.reserved);
    return statistics;
  }

  void resetAccumulatedStats(c10::DeviceIndex) override {}

  void resetPeakStats(c10::DeviceIndex) override { ResetPeakMemory(); }

  // ---- at::mps::IMPSAllocator
  void freeInactiveBuffers() const override {}

  ssize_t getUnalignedBufferSize(const void *handle) const override {
    Buffer *buffer = FindTorchBuffer(handle);
    return buffer ? static_cast<ssize_t>(buffer->size) : -1;
  }

  at::IntArrayRef getBufferShape(const void *) const override { return {}; }

  void setBufferShape(const void *, const at::IntArrayRef &) const override {}

  id_t getBufferId(const void *handle) const override {
    Buffer *buffer = FindTorchBuffer(handle);
    return buffer ? static_cast<id_t>(buffer->id) : 0;
  }

  bool isSharedBuffer(const void *handle) const override {
    return FindTorchBuffer(handle) != nullptr;
  }

  // Allocates the buffer with Origin::kDevice, so that its memory is not reused
  // while a command uses it.  On a Mac, too, torch's pool of scalars reuses a
  // buffer only after the command buffer that used the buffer has ended.
  c10::DataPtr allocScalarBufferWithValue(void *value,
                                          size_t size) const override {
    Buffer *buffer = AllocateBuffer(size, Origin::kDevice);
    TORCH_CHECK(buffer, "MPS backend out of memory");
    memcpy(HostContents(buffer), value, size);
    return MakeDataPtr(buffer);
  }

  std::string formatSize(size_t size) const override {
    std::ostringstream text;
    text.precision(2);
    text << std::fixed;
    if (size <= 1024) {
      text << size << " bytes";
    } else if (size <= 1048576) {
      text << static_cast<double>(size) / 1024.0 << " KiB";
    } else if (size <= 1073741824) {
      text << static_cast<double>(size) / 1048576.0 << " MiB";
    } else {
      text << static_cast<double>(size) / 1073741824.0 << " GiB";
    }
    return text.str();
  }

  void setLowWatermarkRatio(double) const override {}

  void setHighWatermarkRatio(double ratio) const override {
    TORCH_CHECK(ratio >= 0.0 && ratio <= kMaxHighWatermarkRatio,
                "invalid high watermark ratio ", ratio);
    limit_ = ratio == 0.0
                 ? SIZE_MAX
                 : static_cast<size_t>(
                       ratio * static_cast<double>(RecommendedMaxMemory()));
  }

  // Memory is never scarce, so the stream need not commit early to free memory.
  ssize_t getLowWatermarkValue() const override { return SSIZE_MAX; }
  size_t getLowWatermarkLimit() const override { return SIZE_MAX; }
  size_t getHighWatermarkLimit() const override { return limit_; }

  size_t getTotalAllocatedMemory() const override {
    return GetMemoryStatistics().reserved;
  }

  size_t getCurrentAllocatedMemory() const override {
    return GetMemoryStatistics().in_use;
  }

  size_t getDriverAllocatedMemory() const override {
    return GetMemoryStatistics().reserved;
  }

  size_t getRecommendedMaxMemory() const override {
    return RecommendedMaxMemory();
  }

  std::pair<const void *, uint32_t> getSharedBufferPtr(
      const void *handle) const override {
    Buffer *buffer = FindTorchBuffer(handle);
    if (!buffer) return {nullptr, 0};
    return {HostContents(buffer),
            static_cast<uint32_t>(buffer->references.load())};
  }

  c10::Storage getHostAliasStorage(
      const c10::Storage &mps_storage) const override {
    Buffer *buffer = FindTorchBuffer(mps_storage.data());
    TORCH_CHECK(buffer,
                "getHostAliasStorage: the storage was not allocated by the MPS "
                "allocator");
    auto *owner = new c10::Storage(mps_storage);
    return c10::Storage(
        c10::Storage::use_byte_size_t(), mps_storage.nbytes(),
        c10::DataPtr(
            HostContents(buffer), owner,
            [](void *owner) { delete static_cast<c10::Storage *>(owner); },
            c10::Device(c10::kCPU)),
        /*allocator=*/nullptr, /*resizable=*/false);
  }

  bool recordEvents(c10::ArrayRef<const void *> buffers) const override {
    for (const void *handle : buffers)
      if (FindTorchBuffer(handle)) return true;
    return false;
  }

  bool waitForEvents(c10::ArrayRef<const void *> buffers) const override {
    if (!recordEvents(buffers) || !StreamCommandQueue().has_work())
      return false;
    if (StreamDispatchQueue().RunsOnThisThread())
      SynchronizeStream();
    else
      SynchronizeInQueue();
    return true;
  }

 private:
  bool HasRoomFor(size_t size) const {
    return limit_ == SIZE_MAX ||
           GetMemoryStatistics().reserved + size <= limit_;
  }

  mutable std::atomic<size_t> limit_{SIZE_MAX};
};

}  // namespace

bool IsLeftOut() {
  static const bool turned_off =
      Environment("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0";
  return turned_off && !turned_on;
}

at::mps::IMPSAllocator &TorchAllocator() {
  // Never destroyed, because tensors are freed during exit too.
  static Allocator *allocator = new Allocator;
  return *allocator;
}

c10::DataPtr MakeDataPtr(Buffer *buffer) {
  return {DataPointer(buffer), buffer, &ReleaseContext, MpsDevice()};
}

c10::DataPtr MakeHostDataPtr(Buffer *buffer, void *address) {
  return {address, buffer, &ReleaseContext, c10::Device(c10::kCPU)};
}

Buffer *TakeBuffer(c10::DataPtr *data) {
  if (data->get_deleter() != &ReleaseContext) return nullptr;
  return static_cast<Buffer *>(data->release_context());
}

Buffer *BufferOf(const c10::Storage &storage) {
  const void *pointer = storage.data();
  return pointer ? RequireByPointer(pointer, "a tensor on mps") : nullptr;
}

namespace {

const int registered = [] {
  c10::SetAllocator(c10::DeviceType::MPS, &TorchAllocator());
  return 0;
}();

}  // namespace

}  // namespace mps_emulator

namespace at::mps {

__attribute__((visibility("default"))) IMPSAllocator *getIMPSAllocator() {
  return &mps_emulator::TorchAllocator();
}

}  // namespace at::mps

// Returns the MTLBuffer of a storage's data pointer; nullptr for nullptr.
MPS_EMULATOR_EXPORT void *mps_emulator_buffer_of(const void *pointer) {
  using mps_emulator::RequireByPointer;
  return pointer ? RequireByPointer(pointer, "a tensor on mps")->handle
                 : nullptr;
}

// torch_include/ATen/native/mps/OperationUtils.h calls this function.
MPS_EMULATOR_EXPORT void *mps_emulator_storage_buffer(const void *pointer) {
  if (mps_emulator::Environment("MPS_EMULATOR_POINTERS") == "unfindable")
    return const_cast<void *>(pointer);
  return mps_emulator_buffer_of(pointer);
}

// mps_emulator.load() calls this function.
MPS_EMULATOR_EXPORT void mps_emulator_use() { mps_emulator::turned_on = true; }
