// NSNumber of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>

#include <functional>

// Methods that Foundation.h does not declare.
@interface NSNumber (MPSEmulator)
+ (NSNumber *)numberOfKind:(char)kind
                   integer:(long long)integer
                  floating:(double)floating;
@end

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
