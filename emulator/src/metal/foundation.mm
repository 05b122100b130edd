// The Foundation classes of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/fatal.h"
#include "metal/foundation_internal.h"
#include "metal/runtime.h"

using mps_emulator::Fatal;

namespace {

// What lies in front of every object.
struct Header {
  std::atomic<long> references;
  long padding;  // keeps the object aligned to 16
};

Header *HeaderOf(id object) { return reinterpret_cast<Header *>(object) - 1; }

const char *ClassName(id object) { return object_getClassName(object); }

thread_local NSAutoreleasePool *innermost_pool = nil;

using Objects = std::vector<id>;

Objects *ObjectsOf(void *objects) { return static_cast<Objects *>(objects); }

struct HashObject {
  size_t operator()(id object) const { return [object hash]; }
};
struct EqualObjects {
  bool operator()(id a, id b) const { return [a isEqual:b]; }
};
// Keys are copies, as with Apple's dictionaries.
using Entries = std::unordered_map<id, id, HashObject, EqualObjects>;

Entries *EntriesOf(void *entries) { return static_cast<Entries *>(entries); }

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

// Formats as NSString does: printf's conversions, and %@ for an object.
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
        // On 64-bit Linux every length above int is 8 bytes.
        if (is_long)
          result += FormatOne(specification, va_arg(arguments, long));
        else
          result += FormatOne(specification, va_arg(arguments, int));
    }
  }
  return result;
}

}  // namespace

// Methods that Foundation.h does not declare.
@interface NSNumber (MPSEmulator)
+ (NSNumber *)numberOfKind:(char)kind
                   integer:(long long)integer
                  floating:(double)floating;
@end

@interface NSDictionary (MPSEmulator)
- (void)putObject:(id)anObject forKey:(id)aKey;
@end

NSErrorUserInfoKey const NSLocalizedDescriptionKey = @"NSLocalizedDescription";

namespace mps_emulator {

NSError *MakeError(NSErrorDomain domain, NSInteger code,
                   const std::string &text) {
  NSDictionary *info =
      [NSDictionary dictionaryWithObject:ToNSString(text)
                                  forKey:NSLocalizedDescriptionKey];
  return [NSError errorWithDomain:domain code:code userInfo:info];
}

}  // namespace mps_emulator

using mps_emulator::ToNSString;

// ------------------------------------------------------------------ NSObject

@implementation NSObject

+ (void)initialize {
}

+ (instancetype)alloc {
  size_t size = class_getInstanceSize(self);
  Header *header = static_cast<Header *>(calloc(1, sizeof(Header) + size));
  if (!header) Fatal("out of memory: no %zu bytes left for an object", size);
  header->references = 1;
  id object = reinterpret_cast<id>(header + 1);
  object_setClass(object, self);
  return object;
}

+ (instancetype)allocWithZone:(NSZone *)zone {
  return [self alloc];
}

+ (instancetype)new {
  return [[self alloc] init];
}

- (instancetype)init {
  return self;
}

- (void)dealloc {
  free(HeaderOf(self));
}

- (instancetype)retain {
  HeaderOf(self)->references.fetch_add(1, std::memory_order_relaxed);
  return self;
}

- (oneway void)release {
  long before =
      HeaderOf(self)->references.fetch_sub(1, std::memory_order_acq_rel);
  if (before == 1) [self dealloc];
}

- (instancetype)autorelease {
  [NSAutoreleasePool addObject:self];
  return self;
}

- (NSUInteger)retainCount {
  return static_cast<NSUInteger>(HeaderOf(self)->references.load());
}

// A class is an object, too, and lives for ever.
+ (id)retain {
  return self;
}

+ (oneway void)release {
}

+ (id)autorelease {
  return self;
}

- (id)copy {
  return [static_cast<id<NSCopying>>(self) copyWithZone:nullptr];
}

- (instancetype)self {
  return self;
}

+ (Class)class {
  return self;
}

- (Class)class {
  return object_getClass(self);
}

+ (Class)superclass {
  return class_getSuperclass(self);
}

- (Class)superclass {
  return class_getSuperclass(object_getClass(self));
}

- (BOOL)isEqual:(id)object {
  return object == self;
}

- (NSUInteger)hash {
  return reinterpret_cast<NSUInteger>(self) >> 4;
}

- (BOOL)isKindOfClass:(Class)aClass {
  for (Class c = object_getClass(self); c; c = class_getSuperclass(c))
    if (c == aClass) return YES;
  return NO;
}

- (BOOL)isMemberOfClass:(Class)aClass {
  return object_getClass(self) == aClass;
}

+ (BOOL)instancesRespondToSelector:(SEL)aSelector {
  return class_respondsToSelector(self, aSelector);
}

- (BOOL)respondsToSelector:(SEL)aSelector {
  return class_respondsToSelector(object_getClass(self), aSelector);
}

+ (BOOL)conformsToProtocol:(Protocol *)aProtocol {
  const char *name = mps_emulator::NameOfProtocol(aProtocol);
  BOOL conforms = NO;
  for (Class c = self; c && !conforms; c = class_getSuperclass(c)) {
    unsigned int count = 0;
    Protocol **adopted = class_copyProtocolList(c, &count);
    for (unsigned int i = 0; i < count && !conforms; ++i)
      conforms = mps_emulator::ProtocolIsNamed(adopted[i], name);
    free(adopted);
  }
  return conforms;
}

- (BOOL)conformsToProtocol:(Protocol *)aProtocol {
  return [[self class] conformsToProtocol:aProtocol];
}

- (NSString *)description {
  return [NSString stringWithFormat:@"<%s: %p>", ClassName(self), self];
}

- (NSString *)debugDescription {
  return [self description];
}

- (void)doesNotRecognizeSelector:(SEL)aSelector {
  Fatal("-[%s %s]: the object has no such method", ClassName(self),
        sel_getName(aSelector));
}

@end

@implementation NSAutoreleasePool

- (instancetype)init {
  _objects = new Objects;
  _outer = innermost_pool;
  innermost_pool = self;
  return self;
}

// Without a pool the object is never released: a leak, as on a Mac.
+ (void)addObject:(id)anObject {
  [innermost_pool addObject:anObject];
}

- (void)addObject:(id)anObject {
  ObjectsOf(_objects)->push_back(anObject);
}

- (void)drain {
  [self release];
}

- (void)dealloc {
  // Inner pools that were never drained go with this one.
  while (innermost_pool != self && innermost_pool) [innermost_pool drain];
  // Releasing may autorelease more.
  Objects *objects = ObjectsOf(_objects);
  for (size_t i = 0; i < objects->size(); ++i) [(*objects)[i] release];
  delete objects;
  innermost_pool = _outer;
  [super dealloc];
}

@end

// ------------------------------------------------------------------ NSString

// The class of every string that is made at run time.
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

// In UTF-16 units, as Apple counts.
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

- (NSUInteger)hash {
  return std::hash<std::string>()([self UTF8String]);
}

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

- (int)intValue {
  return atoi([self UTF8String]);
}

- (double)doubleValue {
  return atof([self UTF8String]);
}

- (NSString *)description {
  return self;
}

@end

@implementation MPSEmulatorString

- (instancetype)init {
  return [self initWithText:{}];
}

- (instancetype)initWithText:(std::string)text {
  _text = new std::string(std::move(text));
  return self;
}

- (const char *)UTF8String {
  return _text->c_str();
}

- (void)dealloc {
  delete _text;
  [super dealloc];
}

@end

@implementation NSConstantString

- (const char *)UTF8String {
  return _bytes;
}

// Lies in the program's data, without the header of other objects.
- (instancetype)retain {
  return self;
}

- (oneway void)release {
}

- (instancetype)autorelease {
  return self;
}

- (NSUInteger)retainCount {
  return NSUIntegerMax;
}

@end

void NSLog(NSString *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = Format([format UTF8String], arguments);
  va_end(arguments);
  fprintf(stderr, "%s\n", text.c_str());
}

// ------------------------------------------------------------------- NSError

@implementation NSError

- (instancetype)initWithDomain:(NSErrorDomain)domain
                          code:(NSInteger)code
                      userInfo:(NSDictionary *)dict {
  _domain = [domain copy];
  _code = code;
  _userInfo = [dict retain];
  return self;
}

+ (instancetype)errorWithDomain:(NSErrorDomain)domain
                           code:(NSInteger)code
                       userInfo:(NSDictionary *)dict {
  return [[[self alloc] initWithDomain:domain code:code
                              userInfo:dict] autorelease];
}

- (void)dealloc {
  [_domain release];
  [_userInfo release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  return [self retain];
}

- (NSErrorDomain)domain {
  return _domain;
}

- (NSInteger)code {
  return _code;
}

- (NSDictionary *)userInfo {
  return _userInfo;
}

- (NSString *)localizedDescription {
  NSString *text = [_userInfo objectForKey:NSLocalizedDescriptionKey];
  if (text) return text;
  return [NSString stringWithFormat:@"The operation couldn't be completed. "
                                    @"(%@ error %ld.)",
                                    _domain, _code];
}

- (NSString *)description {
  return [NSString stringWithFormat:@"Error Domain=%@ Code=%ld \"%@\"", _domain,
                                    _code, [self localizedDescription]];
}

@end

// ------------------------------------------------------------------ NSNumber

@implementation NSNumber

+ (NSNumber *)numberOfKind:(char)kind
                   integer:(long long)integer
                  floating:(double)floating {
  NSNumber *number = [[[self alloc] init] autorelease];
  number->_kind = kind;
  number->_integer = integer;
  number->_double = floating;
  return number;
}

+ (NSNumber *)numberWithLongLong:(long long)value {
  return [self numberOfKind:'q'
                    integer:value
                   floating:static_cast<double>(value)];
}

+ (NSNumber *)numberWithUnsignedLongLong:(unsigned long long)value {
  return [self numberOfKind:'Q'
                    integer:static_cast<long long>(value)
                   floating:static_cast<double>(value)];
}

+ (NSNumber *)numberWithDouble:(double)value {
  return [self numberOfKind:'d'
                    integer:static_cast<long long>(value)
                   floating:value];
}

+ (NSNumber *)numberWithBool:(BOOL)value {
  return [self numberOfKind:'B' integer:value ? 1 : 0 floating:value ? 1 : 0];
}

+ (NSNumber *)numberWithFloat:(float)value {
  return [self numberWithDouble:value];
}

+ (NSNumber *)numberWithChar:(char)value {
  return [self numberWithLongLong:value];
}

+ (NSNumber *)numberWithShort:(short)value {
  return [self numberWithLongLong:value];
}

+ (NSNumber *)numberWithInt:(int)value {
  return [self numberWithLongLong:value];
}

+ (NSNumber *)numberWithLong:(long)value {
  return [self numberWithLongLong:value];
}

+ (NSNumber *)numberWithInteger:(NSInteger)value {
  return [self numberWithLongLong:value];
}

+ (NSNumber *)numberWithUnsignedChar:(unsigned char)value {
  return [self numberWithUnsignedLongLong:value];
}

+ (NSNumber *)numberWithUnsignedShort:(unsigned short)value {
  return [self numberWithUnsignedLongLong:value];
}

+ (NSNumber *)numberWithUnsignedInt:(unsigned int)value {
  return [self numberWithUnsignedLongLong:value];
}

+ (NSNumber *)numberWithUnsignedLong:(unsigned long)value {
  return [self numberWithUnsignedLongLong:value];
}

+ (NSNumber *)numberWithUnsignedInteger:(NSUInteger)value {
  return [self numberWithUnsignedLongLong:value];
}

- (id)copyWithZone:(NSZone *)zone {
  return [self retain];
}

- (int)intValue {
  return static_cast<int>(_integer);
}

- (unsigned int)unsignedIntValue {
  return static_cast<unsigned int>(_integer);
}

- (long)longValue {
  return _integer;
}

- (unsigned long)unsignedLongValue {
  return static_cast<unsigned long>(_integer);
}

- (long long)longLongValue {
  return _integer;
}

- (unsigned long long)unsignedLongLongValue {
  return static_cast<unsigned long long>(_integer);
}

- (NSInteger)integerValue {
  return _integer;
}

- (NSUInteger)unsignedIntegerValue {
  return static_cast<NSUInteger>(_integer);
}

- (float)floatValue {
  return static_cast<float>(_double);
}

- (double)doubleValue {
  return _double;
}

- (BOOL)boolValue {
  return _kind == 'd' ? _double != 0 : _integer != 0;
}

- (NSString *)stringValue {
  if (_kind == 'd') return [NSString stringWithFormat:@"%.17g", _double];
  if (_kind == 'Q') return [NSString stringWithFormat:@"%llu", _integer];
  return [NSString stringWithFormat:@"%lld", _integer];
}

- (NSString *)description {
  return [self stringValue];
}

- (BOOL)isEqual:(id)object {
  if (![object isKindOfClass:[NSNumber class]]) return NO;
  NSNumber *other = object;
  return _kind == 'd' || other->_kind == 'd' ? _double == other->_double
                                             : _integer == other->_integer;
}

- (NSUInteger)hash {
  return std::hash<double>()(_double);
}

@end

// ------------------------------------------------------- NSArray, NSDictionary

@implementation NSArray

- (instancetype)init {
  _objects = new Objects;
  return self;
}

- (instancetype)initWithObjects:(const id[])objects count:(NSUInteger)cnt {
  _objects = new Objects(objects, objects + cnt);
  for (id object : *ObjectsOf(_objects)) [object retain];
  return self;
}

+ (instancetype)array {
  return [[[self alloc] init] autorelease];
}

+ (instancetype)arrayWithObject:(id)anObject {
  return [self arrayWithObjects:&anObject count:1];
}

+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)cnt {
  return [[[self alloc] initWithObjects:objects count:cnt] autorelease];
}

+ (instancetype)arrayWithObjects:(id)firstObj, ... {
  Objects objects;
  va_list arguments;
  va_start(arguments, firstObj);
  for (id object = firstObj; object; object = va_arg(arguments, id))
    objects.push_back(object);
  va_end(arguments);
  return [self arrayWithObjects:objects.data() count:objects.size()];
}

+ (instancetype)arrayWithArray:(NSArray *)array {
  Objects *objects = ObjectsOf(array->_objects);
  return [self arrayWithObjects:objects->data() count:objects->size()];
}

- (void)dealloc {
  for (id object : *ObjectsOf(_objects)) [object release];
  delete ObjectsOf(_objects);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  return [[NSArray arrayWithArray:self] retain];
}

- (NSUInteger)count {
  return ObjectsOf(_objects)->size();
}

- (id)objectAtIndex:(NSUInteger)index {
  if (index >= [self count])
    Fatal("-[NSArray objectAtIndex:]: index %lu is beyond the %lu elements",
          index, [self count]);
  return (*ObjectsOf(_objects))[index];
}

- (id)firstObject {
  return [self count] ? [self objectAtIndex:0] : nil;
}

- (id)lastObject {
  return [self count] ? [self objectAtIndex:[self count] - 1] : nil;
}

- (NSUInteger)indexOfObject:(id)anObject {
  for (NSUInteger i = 0; i < [self count]; ++i)
    if ([[self objectAtIndex:i] isEqual:anObject]) return i;
  return NSNotFound;
}

- (BOOL)containsObject:(id)anObject {
  return [self indexOfObject:anObject] != static_cast<NSUInteger>(NSNotFound);
}

- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
                                  objects:(id *)buffer
                                    count:(NSUInteger)len {
  if (state->state) return 0;
  state->state = 1;
  // Nobody watches for changes: mutations while enumerating are not reported.
  state->mutationsPtr = &state->extra[0];
  state->itemsPtr = ObjectsOf(_objects)->data();
  return [self count];
}

- (NSString *)description {
  std::string text = "(";
  for (NSUInteger i = 0; i < [self count]; ++i) {
    if (i) text += ", ";
    text += [[[self objectAtIndex:i] description] UTF8String];
  }
  return ToNSString(text + ")");
}

@end

@implementation NSMutableArray

+ (instancetype)arrayWithCapacity:(NSUInteger)numItems {
  return [self array];
}

- (void)addObject:(id)anObject {
  ObjectsOf(_objects)->push_back([anObject retain]);
}

- (void)removeLastObject {
  if (![self count]) Fatal("-[NSMutableArray removeLastObject]: it is empty");
  [ObjectsOf(_objects)->back() release];
  ObjectsOf(_objects)->pop_back();
}

- (void)removeAllObjects {
  for (id object : *ObjectsOf(_objects)) [object release];
  ObjectsOf(_objects)->clear();
}

@end

@implementation NSDictionary

- (instancetype)init {
  _entries = new Entries;
  return self;
}

+ (instancetype)dictionary {
  return [[[self alloc] init] autorelease];
}

+ (instancetype)dictionaryWithObject:(id)object forKey:(id)key {
  return [self dictionaryWithObjects:&object forKeys:&key count:1];
}

+ (instancetype)dictionaryWithObjects:(const id[])objects
                              forKeys:(const id[])keys
                                count:(NSUInteger)cnt {
  NSDictionary *dictionary = [self dictionary];
  for (NSUInteger i = 0; i < cnt; ++i)
    [dictionary putObject:objects[i] forKey:keys[i]];
  return dictionary;
}

- (void)putObject:(id)anObject forKey:(id)aKey {
  if (!anObject || !aKey) Fatal("NSDictionary: nil is neither key nor value");
  Entries *entries = EntriesOf(_entries);
  auto found = entries->find(aKey);
  if (found != entries->end()) {
    mps_emulator::Assign(&found->second, anObject);
    return;
  }
  entries->emplace([aKey copy], [anObject retain]);
}

- (void)dealloc {
  for (auto &[key, object] : *EntriesOf(_entries)) {
    [key release];
    [object release];
  }
  delete EntriesOf(_entries);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  NSDictionary *copy = [[NSDictionary alloc] init];
  for (auto &[key, object] : *EntriesOf(_entries))
    [copy putObject:object forKey:key];
  return copy;
}

- (NSUInteger)count {
  return EntriesOf(_entries)->size();
}

- (id)objectForKey:(id)aKey {
  auto found = EntriesOf(_entries)->find(aKey);
  return found == EntriesOf(_entries)->end() ? nil : found->second;
}

- (NSArray *)allKeys {
  Objects keys;
  for (auto &[key, object] : *EntriesOf(_entries)) keys.push_back(key);
  return [NSArray arrayWithObjects:keys.data() count:keys.size()];
}

- (NSArray *)allValues {
  Objects objects;
  for (auto &[key, object] : *EntriesOf(_entries)) objects.push_back(object);
  return [NSArray arrayWithObjects:objects.data() count:objects.size()];
}

- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
                                  objects:(id *)buffer
                                    count:(NSUInteger)len {
  return [[self allKeys] countByEnumeratingWithState:state
                                             objects:buffer
                                               count:len];
}

- (NSString *)description {
  std::string text = "{";
  for (auto &[key, object] : *EntriesOf(_entries))
    text += std::string(" ") + [[key description] UTF8String] + " = " +
            [[object description] UTF8String] + ";";
  return ToNSString(text + " }");
}

@end

@implementation NSMutableDictionary

- (void)setObject:(id)anObject forKey:(id)aKey {
  [self putObject:anObject forKey:aKey];
}

- (void)removeObjectForKey:(id)aKey {
  Entries *entries = EntriesOf(_entries);
  auto found = entries->find(aKey);
  if (found == entries->end()) return;
  auto [key, object] = *found;
  entries->erase(found);
  [key release];
  [object release];
}

@end

// --------------------------------------------------------- NSURL,
// NSProcessInfo

@implementation NSURL

+ (NSURL *)fileURLWithPath:(NSString *)path {
  NSURL *url = [[[self alloc] init] autorelease];
  url->_path = [path copy];
  return url;
}

- (void)dealloc {
  [_path release];
  [super dealloc];
}

- (NSString *)path {
  return _path;
}

- (NSString *)description {
  return [@"file://" stringByAppendingString:_path];
}

@end

@implementation NSProcessInfo

+ (NSProcessInfo *)processInfo {
  static NSProcessInfo *info = [[self alloc] init];
  return info;
}

- (NSString *)processName {
  return [NSString stringWithUTF8String:program_invocation_short_name];
}

- (int)processIdentifier {
  return getpid();
}

- (unsigned long long)physicalMemory {
  return static_cast<unsigned long long>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
}

- (NSOperatingSystemVersion)operatingSystemVersion {
  return {15, 2, 0};
}

- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version {
  NSOperatingSystemVersion mine = [self operatingSystemVersion];
  return std::tie(mine.majorVersion, mine.minorVersion, mine.patchVersion) >=
         std::tie(version.majorVersion, version.minorVersion,
                  version.patchVersion);
}

@end
