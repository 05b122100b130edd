// at::mps::MPSStream and MPSDevice, which torch's own headers declare.
// core/stream.h documents how both behave on a Mac.
#include <ATen/mps/MPSDevice.h>
#include <ATen/mps/MPSStream.h>
#include <c10/metal/error.h>
#include <c10/util/Exception.h>

#include <exception>
#include <mutex>

#include "core/counters.h"
#include "core/release.h"
#include "core/stream.h"
#include "metal/dispatch_queue.h"
#include "metal/metal_internal.h"

#define MPS_EMULATOR_API __attribute__((visibility("default")))

namespace at::mps {

using mps_emulator::CommandBufferOf;
using mps_emulator::OnStream;
using mps_emulator::SerialQueue;
using mps_emulator::StreamCommandQueue;
using mps_emulator::StreamDispatchQueue;

static int IdOf(const MPSStream &stream) {
  return static_cast<int>(stream.unwrap().id());
}

MPSStream::MPSStream(Stream stream) : _stream(stream) {
  TORCH_CHECK(stream.device_type() == DeviceType::MPS,
              "MPSStream: not a stream of the mps device");
  OnStream on(IdOf(*this));
  _commandQueue = mps_emulator::NewCommandQueueObject(&StreamCommandQueue());
  _serialQueue =
      mps_emulator::ToHandle(&mps_emulator::StreamDispatchQueueObject());
}

MPSStream::~MPSStream() { [_commandQueue release]; }

MPSCommandBuffer_t MPSStream::commandBuffer() {
  OnStream on(IdOf(*this));
  if (!_commandBuffer) {
    @autoreleasepool {
      _commandBuffer = [[MPSCommandBuffer
          commandBufferFromCommandQueue:_commandQueue] retain];
    }
    StreamCommandQueue().NoteWork();
    mps_emulator::SetOpenCommandBuffer(CommandBufferOf(_commandBuffer));
#if TORCH_AT_LEAST(15)
    addErrorHandler();
#endif
  }
  return _commandBuffer;
}

// The emulator's operators open no encoder.  Instead, the open command buffer
// notes that a Mac's operator would have left its encoder open
// (SetCoalescing()).  This function clears the note, because its caller uses or
// ends that encoder.
static void TakeCoalescedEncoder() {
  if (const auto &open = mps_emulator::OpenCommandBuffer())
    open->SetCoalescing(nullptr);
}

MTLComputeCommandEncoder_t MPSStream::commandEncoder() {
  OnStream on(IdOf(*this));
  // PyTorch's change #198039 adds this check.
  TORCH_INTERNAL_ASSERT(!mps_emulator::EncoderIsAsserted() ||
                            StreamDispatchQueue().RunsOnThisThread(),
                        "commandEncoder() must be called on the stream queue");
  TakeCoalescedEncoder();
  if (!_commandEncoder) {
    @autoreleasepool {
      _commandEncoder = [[commandBuffer() computeCommandEncoder] retain];
    }
  }
  return _commandEncoder;
}

void MPSStream::endKernelCoalescing() {
  OnStream on(IdOf(*this));
  TakeCoalescedEncoder();
  if (!_commandEncoder) return;
  [_commandEncoder endEncoding];
  [_commandEncoder release];
  _commandEncoder = nil;
}

void MPSStream::synchronize(SyncType syncType) {
  OnStream on(IdOf(*this));
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
      if (!StreamCommandQueue().has_work()) break;
      mps_emulator::Count(mps_emulator::kWaitsWithWork);
      endKernelCoalescing();
      commitAndWait();
      break;
    }
  }
}

void MPSStream::commitAndContinue() {
  [commandBuffer() commitAndContinue];
  mps_emulator::SetOpenCommandBuffer(CommandBufferOf(_commandBuffer));
#if TORCH_AT_LEAST(15)
  addErrorHandler();
#endif
}

// Some programs use a command buffer after torch has released it.  The last
// kKept command buffers stay alive, so that the emulator can report this
// mistake.
static void ReleaseLater(MPSCommandBuffer_t buffer) {
  constexpr size_t kKept = 64;
  static MPSCommandBuffer_t kept[kKept];
  static size_t next = 0;
  static auto *mutex = new std::mutex;
  {
    // Each stream has its own queue, so several threads may run this code at
    // once.
    std::lock_guard<std::mutex> lock(*mutex);
    std::swap(kept[next], buffer);
    next = (next + 1) % kKept;
  }
  [buffer release];
}

void MPSStream::commitAndWait() {
  // Operators run at once, without a command buffer.  So the stream may have
  // work but no command buffer; commandBuffer() then makes one.
  commandBuffer();
  mps_emulator::SetOpenCommandBuffer(nullptr);
  [_commandBuffer commit];
  [_commandBuffer waitUntilCompleted];
  ReleaseLater(_commandBuffer);
  _commandBuffer = nil;
  checkLastError();
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

#if TORCH_AT_LEAST(15)
void MPSStream::addErrorHandler() {
  // This handler belongs to torch, so it must not be a completed handler.  If a
  // command buffer has a completed handler, the race checker assumes that the
  // program knows when the work has ended.
  CommandBufferOf(_commandBuffer)->SetFailedHandler([this] {
    recordCommandBufferError({/*is_oom=*/false, mps_emulator::kTimeout,
                              mps_emulator::kTimeoutText});
  });
}

void MPSStream::recordCommandBufferError(CommandBufferError error) {
  std::lock_guard<std::mutex> lock(_commandBufferErrorMutex);
  if (!_commandBufferError) _commandBufferError = std::move(error);
}
#endif

void MPSStream::checkLastError() {
#if TORCH_AT_LEAST(15)
  std::optional<CommandBufferError> failed;
  {
    std::lock_guard<std::mutex> lock(_commandBufferErrorMutex);
    failed.swap(_commandBufferError);
  }
  if (failed)
    throw c10::AcceleratorError(
        {"checkLastError", "MPSStream.mm", 0}, failed->code,
        "MPS command buffer execution failed: " + failed->message +
            ". This error may have been asynchronously reported, so the stack "
            "trace below might be incorrect.");
#endif
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

static MPSStream *StreamOf(int id) {
  if (id == 0) return getDefaultMPSStream();
  static auto *mutex = new std::mutex;
  static MPSStream *streams[mps_emulator::kStreams];
  std::lock_guard<std::mutex> lock(*mutex);
  if (!streams[id])
    streams[id] =
        new MPSStream(Stream(Stream::UNSAFE, Device(DeviceType::MPS, 0), id));
  return streams[id];
}

MPS_EMULATOR_API MPSStream *getCurrentMPSStream() {
  return StreamOf(mps_emulator::CurrentStream());
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

// The emulated system is macOS 15.2.
bool MPSDevice::isMacOS13Plus(MacOSVersion version) const {
#if TORCH_AT_LEAST(14)
  return version <= MacOSVersion::MACOS_15_2;
#else
  return version <= MacOSVersion::MACOS_VER_15_2_PLUS;
#endif
}

unsigned MPSDevice::getCoreCount() const { return 8; }

MPS_EMULATOR_API bool is_available() { return true; }

#if TORCH_AT_LEAST(14)
MPS_EMULATOR_API bool is_macos_at_least(MacOSVersion version) {
#else
MPS_EMULATOR_API bool is_macos_13_or_newer(MacOSVersion version) {
#endif
  return MPSDevice::getInstance()->isMacOS13Plus(version);
}

}  // namespace at::mps

namespace mps_emulator {

void SynchronizeStream() {
  at::mps::getCurrentMPSStream()->synchronize(
      at::mps::SyncType::COMMIT_AND_WAIT);
}

void CommitStream() {
  at::mps::getCurrentMPSStream()->synchronize(at::mps::SyncType::COMMIT);
}

void *StreamCommandBuffer() {
  at::mps::MPSStream *stream = at::mps::getCurrentMPSStream();
  stream->endKernelCoalescing();
  return stream->commandBuffer();
}

void EndStreamCoalescing() {
  at::mps::getCurrentMPSStream()->endKernelCoalescing();
}

}  // namespace mps_emulator
