// at::mps::MPSStream and MPSDevice, which torch's own headers declare.
// core/stream.h documents their behaviour on a Mac.
#include <ATen/mps/MPSDevice.h>
#include <ATen/mps/MPSStream.h>
#include <c10/metal/error.h>
#include <c10/util/Exception.h>

#include <exception>

#include "core/counters.h"
#include "core/stream.h"
#include "metal/dispatch_queue.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

#define MPS_EMULATOR_API __attribute__((visibility("default")))

namespace at::mps {

using mps_emulator::CommandBufferOf;
using mps_emulator::SerialQueue;
using mps_emulator::StreamCommandQueue;
using mps_emulator::StreamDispatchQueue;

MPSStream::MPSStream(Stream stream) : _stream(stream) {
  TORCH_CHECK(stream.device_type() == DeviceType::MPS,
              "MPSStream: not a stream of the mps device");
  _commandQueue = mps_emulator::NewCommandQueueObject(&StreamCommandQueue());
  _serialQueue =
      mps_emulator::ToHandle(&mps_emulator::StreamDispatchQueueObject());
}

MPSStream::~MPSStream() { [_commandQueue release]; }

MPSCommandBuffer_t MPSStream::commandBuffer() {
  if (!_commandBuffer) {
    @autoreleasepool {
      _commandBuffer = [[MPSCommandBuffer
          commandBufferFromCommandQueue:_commandQueue] retain];
    }
    StreamCommandQueue().NoteWork();
    mps_emulator::SetOpenCommandBuffer(CommandBufferOf(_commandBuffer));
  }
  return _commandBuffer;
}

// The emulator's operators open no encoder.  mps_emulator::CommandBuffer notes
// where a Mac's operator would have left its encoder open.
static void TakeCoalescedEncoder() {
  if (const auto &open = mps_emulator::OpenCommandBuffer())
    open->SetCoalescing(nullptr);
}

MTLComputeCommandEncoder_t MPSStream::commandEncoder() {
  TakeCoalescedEncoder();
  if (!_commandEncoder) {
    @autoreleasepool {
      _commandEncoder = [[commandBuffer() computeCommandEncoder] retain];
    }
  }
  return _commandEncoder;
}

void MPSStream::endKernelCoalescing() {
  TakeCoalescedEncoder();
  if (!_commandEncoder) return;
  [_commandEncoder endEncoding];
  [_commandEncoder release];
  _commandEncoder = nil;
}

void MPSStream::synchronize(SyncType syncType) {
  switch (syncType) {
    case SyncType::NONE:
    case SyncType::COMMIT_ADAPTIVE:  // commits only if memory is scarce
      endKernelCoalescing();
      break;
    case SyncType::COMMIT:
    case SyncType::COMMIT_AND_CONTINUE: {
      SerialQueue::Bypass bypass(&StreamDispatchQueue(),
                                 "committing torch's stream");
      endKernelCoalescing();
      commitAndContinue();
      break;
    }
    case SyncType::COMMIT_AND_WAIT: {
      SerialQueue::Bypass bypass(&StreamDispatchQueue(),
                                 "synchronizing torch's stream");
      mps_emulator::Count(mps_emulator::kSynchronizations);
      if (!StreamCommandQueue().has_work()) break;
      mps_emulator::Count(mps_emulator::kWaitsWithWork);
      endKernelCoalescing();
      commitAndWait();
      break;
    }
  }
}

void MPSStream::commit() { commitAndContinue(); }

void MPSStream::commitAndContinue() {
  [commandBuffer() commitAndContinue];
  mps_emulator::SetOpenCommandBuffer(CommandBufferOf(_commandBuffer));
}

// Some programs use a command buffer that torch has released.  The last kKept
// objects stay alive to report this mistake.
static void ReleaseLater(MPSCommandBuffer_t buffer) {
  constexpr size_t kKept = 64;
  static MPSCommandBuffer_t kept[kKept];
  static size_t next = 0;
  [kept[next] release];
  kept[next] = buffer;
  next = (next + 1) % kKept;
}

void MPSStream::commitAndWait() {
  // Operators run at once, so there may be work without a command buffer.
  commandBuffer();
  mps_emulator::SetOpenCommandBuffer(nullptr);
  [_commandBuffer commit];
  [_commandBuffer waitUntilCompleted];
  ReleaseLater(_commandBuffer);
  _commandBuffer = nil;
  checkLastError();
}

void MPSStream::flush() {
  if (!_commandBuffer) return;
  mps_emulator::SetOpenCommandBuffer(nullptr);
  [_commandBuffer commit];
  [_commandBuffer release];
  _commandBuffer = nil;
}

void MPSStream::copy(MTLBuffer_t srcBuffer, MTLBuffer_t dstBuffer,
                     size_t length, size_t srcOffset, size_t dstOffset,
                     uint64_t profileId, SyncType syncType) {
  dispatch_sync_with_rethrow(queue(), ^() {
    @autoreleasepool {
      endKernelCoalescing();
      id<MTLBlitCommandEncoder> encoder = [commandBuffer() blitCommandEncoder];
      [encoder copyFromBuffer:srcBuffer
                 sourceOffset:srcOffset
                     toBuffer:dstBuffer
            destinationOffset:dstOffset
                         size:length];
      [encoder endEncoding];
      synchronize(syncType);
    }
  });
}

void MPSStream::copy_and_sync(MTLBuffer_t srcBuffer, MTLBuffer_t dstBuffer,
                              size_t length, size_t srcOffset, size_t dstOffset,
                              bool non_blocking, uint64_t profileId) {
  copy(srcBuffer, dstBuffer, length, srcOffset, dstOffset, profileId,
       non_blocking ? SyncType::COMMIT : SyncType::COMMIT_AND_WAIT);
}

void MPSStream::addCompletedHandler(MTLCommandBufferHandler block) {
  dispatch_sync(queue(), ^() {
    [commandBuffer() addCompletedHandler:block];
  });
}

MTLDevice_t MPSStream::device() const { return [_commandQueue device]; }

// Kernels report errors through this buffer (c10/metal/error.h).
MTLBuffer_t MPSStream::getErrorBuffer() {
  if (!_errorBuffer) {
    _errorBuffer =
        [device() newBufferWithLength:sizeof(c10::metal::ErrorMessages)
                              options:MTLResourceStorageModeShared];
    memset([_errorBuffer contents], 0, sizeof(c10::metal::ErrorMessages));
  }
  return _errorBuffer;
}

void MPSStream::checkLastError() {
  if (!_errorBuffer) return;
  auto *messages =
      static_cast<c10::metal::ErrorMessages *>([_errorBuffer contents]);
  if (!messages->count) return;
  messages->count = 0;
  const c10::metal::ErrorMessage &first = messages->msg[0];
  throw c10::AcceleratorError({first.func, first.file, first.line}, 1,
                              first.message);
}

MPSStream *MPSStreamImpl::_stream = nullptr;

MPSStream *MPSStreamImpl::getInstance() {
  static MPSStream *stream = _stream =
      new MPSStream(Stream(Stream::UNSAFE, Device(DeviceType::MPS, 0), 0));
  return stream;
}

MPS_EMULATOR_API MPSStream *getDefaultMPSStream() {
  return MPSStreamImpl::getInstance();
}

MPS_EMULATOR_API MPSStream *getCurrentMPSStream() {
  return getDefaultMPSStream();
}

MPS_EMULATOR_API void dispatch_sync_with_rethrow(dispatch_queue_t queue,
                                                 void (^block)()) {
  __block std::exception_ptr thrown;
  dispatch_sync(queue, ^() {
    try {
      block();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

MPSDevice *MPSDevice::_device = nullptr;

MPSDevice::MPSDevice() : _mtl_device(MTLCreateSystemDefaultDevice()) {}

MPSDevice::~MPSDevice() { [_mtl_device release]; }

MPSDevice *MPSDevice::getInstance() {
  static MPSDevice *device = _device = new MPSDevice;
  return device;
}

bool MPSDevice::isMacOS13Plus(MacOSVersion version) const {
  return version <= MacOSVersion::MACOS_VER_15_2_PLUS;
}

std::string MPSDevice::getName() const {
  return mps_emulator::ToStdString([_mtl_device name]);
}

unsigned MPSDevice::getCoreCount() const { return 8; }

MPS_EMULATOR_API bool is_available() { return true; }

MPS_EMULATOR_API bool is_macos_13_or_newer(MacOSVersion version) {
  return MPSDevice::getInstance()->isMacOS13Plus(version);
}

MPS_EMULATOR_API bool is_apple_family_or_newer(AppleGPUFamily family) {
  return [MPSDevice::getInstance()->device()
      supportsFamily:static_cast<MTLGPUFamily>(family)];
}

}  // namespace at::mps

namespace mps_emulator {

void SynchronizeStream() {
  at::mps::getDefaultMPSStream()->synchronize(
      at::mps::SyncType::COMMIT_AND_WAIT);
}

void CommitStream() {
  at::mps::getDefaultMPSStream()->synchronize(at::mps::SyncType::COMMIT);
}

void *StreamCommandBuffer() {
  at::mps::MPSStream *stream = at::mps::getDefaultMPSStream();
  stream->endKernelCoalescing();
  return stream->commandBuffer();
}

void EndStreamCoalescing() {
  at::mps::getDefaultMPSStream()->endKernelCoalescing();
}

}  // namespace mps_emulator
