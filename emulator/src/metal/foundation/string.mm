// Strings and NSLog() of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>
#include <string.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "core/fatal.h"
#include "metal/foundation_internal.h"

using mps_emulator::Fatal;
using mps_emulator::ToNSString;

namespace {

// Formats one printf conversion; `specification` has no '*' in it.
template <typename T>
std::string FormatOne(const std::string &specification, T value) {
  int length = snprintf(nullptr, 0, specification.c_str(), value);
  if (length < 0) return specification;
  std::string text(static_cast<size_t>(length) + 1, '\0');
  snprintf(text.data(), text.size(), specification.c_str(), value);
  text.pop_back();
  return text;
}

// Formats like NSString: printf's conversions, and %@ for an object.
std::string Format(const char *format, va_list arguments) {
  std::string result;
  for (const char *p = format; *p;) {
    if (*p != '%') {
      const char *end = strchrnul(p, '%');
      result.append(p, end);
      p = end;
      continue;
    }
    // Flags, width and precision; then the length; then the conversion.
    std::string specification;
    for (; *p && (specification.empty() || strchr("-+ #0123456789.*", *p)); ++p)
      if (*p == '*')
        specification += std::to_string(va_arg(arguments, int));
      else
        specification += *p;
    const char *length = p;
    p += strspn(p, "hlqzjtL");
    specification.append(length, p);
    bool is_long = p != length && *length != 'h' && *length != 'L';
    if (!*p) return result + specification;
    char conversion = *p++;
    specification += conversion;

    switch (conversion) {
      case '%':
        result += '%';
        break;
      case '@': {
        id object = va_arg(arguments, id);
        result += object ? [[object description] UTF8String] : "(null)";
        break;
      }
      case 's':
        result += FormatOne(specification, va_arg(arguments, const char *));
        break;
      case 'p':
        result += FormatOne(specification, va_arg(arguments, void *));
        break;
      case 'a':
      case 'A':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (*length == 'L')
          result += FormatOne(specification, va_arg(arguments, long double));
        else
          result += FormatOne(specification, va_arg(arguments, double));
        break;
      default:
        // On 64-bit Linux every type longer than int has 8 bytes.
        if (is_long)
          result += FormatOne(specification, va_arg(arguments, long));
        else
          result += FormatOne(specification, va_arg(arguments, int));
    }
  }
  return result;
}

}  // namespace

// The class of strings made at run time.
@interface MPSEmulatorString : NSString {
  std::string *_text;
}
- (instancetype)initWithText:(std::string)text;
@end

@implementation NSString

+ (instancetype)alloc {
  if (self == [NSString class]) return [MPSEmulatorString alloc];
  return [super alloc];
}

+ (instancetype)string {
  return [self stringWithUTF8String:""];
}

+ (instancetype)stringWithString:(NSString *)string {
  return [self stringWithUTF8String:[string UTF8String]];
}

+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString {
  return [[[self alloc] initWithUTF8String:nullTerminatedCString] autorelease];
}

+ (instancetype)stringWithCString:(const char *)cString
                         encoding:(NSStringEncoding)enc {
  return [self stringWithUTF8String:cString];
}

+ (instancetype)stringWithFormat:(NSString *)format, ... {
  va_list arguments;
  va_start(arguments, format);
  NSString *string = [[self alloc] initWithFormat:format arguments:arguments];
  va_end(arguments);
  return [string autorelease];
}

+ (instancetype)stringWithContentsOfFile:(NSString *)path
                                encoding:(NSStringEncoding)enc
                                   error:(NSError **)error {
  std::ifstream file([path UTF8String], std::ios::binary);
  if (!file) {
    if (error)
      *error = mps_emulator::MakeError(
          @"NSCocoaErrorDomain", 260,
          std::string("The file ") + [path UTF8String] + " couldn't be opened");
    return nil;
  }
  std::ostringstream text;
  text << file.rdbuf();
  return ToNSString(text.str());
}

- (instancetype)initWithUTF8String:(const char *)nullTerminatedCString {
  if (!nullTerminatedCString) Fatal("-[NSString initWithUTF8String:]: NULL");
  return [(MPSEmulatorString *)self initWithText:nullTerminatedCString];
}

- (instancetype)initWithBytes:(const void *)bytes
                       length:(NSUInteger)len
                     encoding:(NSStringEncoding)encoding {
  return [(MPSEmulatorString *)self
      initWithText:std::string(static_cast<const char *>(bytes), len)];
}

- (instancetype)initWithFormat:(NSString *)format, ... {
  va_list arguments;
  va_start(arguments, format);
  id string = [self initWithFormat:format arguments:arguments];
  va_end(arguments);
  return string;
}

- (instancetype)initWithFormat:(NSString *)format arguments:(va_list)argList {
  return [(MPSEmulatorString *)self
      initWithText:Format([format UTF8String], argList)];
}

- (id)copyWithZone:(NSZone *)zone {
  return [self retain];  // strings never change
}

- (const char *)UTF8String {
  [self doesNotRecognizeSelector:_cmd];
  return nullptr;
}

- (const char *)cStringUsingEncoding:(NSStringEncoding)encoding {
  return [self UTF8String];
}

- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)enc {
  return strlen([self UTF8String]);
}

// In UTF-16 units, like Apple's.
- (NSUInteger)length {
  NSUInteger length = 0;
  for (const char *p = [self UTF8String]; *p; ++p) {
    unsigned char byte = static_cast<unsigned char>(*p);
    if ((byte & 0xC0) != 0x80) length += byte >= 0xF0 ? 2 : 1;
  }
  return length;
}

- (unichar)characterAtIndex:(NSUInteger)index {
  const char *text = [self UTF8String];
  if (index >= strlen(text))
    Fatal("-[NSString characterAtIndex:]: index %lu is out of range", index);
  return static_cast<unsigned char>(text[index]);
}

- (NSString *)stringByAppendingString:(NSString *)aString {
  return ToNSString(std::string([self UTF8String]) + [aString UTF8String]);
}

- (NSString *)stringByAppendingFormat:(NSString *)format, ... {
  va_list arguments;
  va_start(arguments, format);
  std::string tail = Format([format UTF8String], arguments);
  va_end(arguments);
  return ToNSString([self UTF8String] + tail);
}

- (BOOL)isEqualToString:(NSString *)aString {
  return aString && !strcmp([self UTF8String], [aString UTF8String]);
}

- (BOOL)isEqual:(id)object {
  return
      [object isKindOfClass:[NSString class]] && [self isEqualToString:object];
}

GETTER(NSUInteger, hash, std::hash<std::string>()([self UTF8String]))

- (NSComparisonResult)compare:(NSString *)string {
  int order = strcmp([self UTF8String], [string UTF8String]);
  return order < 0    ? NSOrderedAscending
         : order == 0 ? NSOrderedSame
                      : NSOrderedDescending;
}

- (BOOL)hasPrefix:(NSString *)str {
  return std::string([self UTF8String]).starts_with([str UTF8String]);
}

- (BOOL)hasSuffix:(NSString *)str {
  return std::string([self UTF8String]).ends_with([str UTF8String]);
}

- (BOOL)containsString:(NSString *)str {
  return strstr([self UTF8String], [str UTF8String]) != nullptr;
}

GETTER(int, intValue, atoi([self UTF8String]))
GETTER(double, doubleValue, atof([self UTF8String]))
GETTER(NSString *, description, self)

@end

@implementation MPSEmulatorString

- (instancetype)init {
  return [self initWithText:{}];
}

- (instancetype)initWithText:(std::string)text {
  _text = new std::string(std::move(text));
  return self;
}

GETTER(const char *, UTF8String, _text->c_str())

- (void)dealloc {
  delete _text;
  [super dealloc];
}

@end

@implementation NSConstantString

GETTER(const char *, UTF8String, _bytes)

// The object is in the program's data, without a header.
GETTER(instancetype, retain, self)

- (oneway void)release {
}

GETTER(instancetype, autorelease, self)
GETTER(NSUInteger, retainCount, NSUIntegerMax)

@end

void NSLog(NSString *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = Format([format UTF8String], arguments);
  va_end(arguments);
  fprintf(stderr, "%s\n", text.c_str());
}
