// Helpers for the emulator's own Objective-C++ files.
#pragma once

#include <Foundation/Foundation.h>

#include <string>

// Defines a method without arguments that returns the value of an expression.
#define GETTER(type, name, ...) \
  -(type)name {                 \
    return __VA_ARGS__;         \
  }

namespace mps_emulator {

// Returns an autoreleased string.
inline NSString *ToNSString(const std::string &text) {
  return [NSString stringWithUTF8String:text.c_str()];
}

inline std::string ToStdString(NSString *text) {
  return text ? [text UTF8String] : "";
}

// Returns an autoreleased error whose localizedDescription is `text`.
NSError *MakeError(NSErrorDomain domain, NSInteger code,
                   const std::string &text);

// Sets a property that is declared `copy` or `strong`.
template <typename T>
void Assign(T *member, T value) {
  [value retain];
  [*member release];
  *member = value;
}

}  // namespace mps_emulator
