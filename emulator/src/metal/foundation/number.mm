// NSNumber of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>

#include <functional>

#include "metal/foundation_internal.h"

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

#define FROM(name, type, widest)                \
  +(NSNumber *)numberWith##name : (type)value { \
    return [self numberWith##widest:value];     \
  }
FROM(Float, float, Double)
FROM(Char, char, LongLong)
FROM(Short, short, LongLong)
FROM(Int, int, LongLong)
FROM(Long, long, LongLong)
FROM(Integer, NSInteger, LongLong)
FROM(UnsignedChar, unsigned char, UnsignedLongLong)
FROM(UnsignedShort, unsigned short, UnsignedLongLong)
FROM(UnsignedInt, unsigned int, UnsignedLongLong)
FROM(UnsignedLong, unsigned long, UnsignedLongLong)
FROM(UnsignedInteger, NSUInteger, UnsignedLongLong)
#undef FROM

- (id)copyWithZone:(NSZone *)zone {
  return [self retain];
}

GETTER(int, intValue, static_cast<int>(_integer))
GETTER(unsigned int, unsignedIntValue, static_cast<unsigned int>(_integer))
GETTER(long, longValue, _integer)
GETTER(unsigned long, unsignedLongValue, static_cast<unsigned long>(_integer))
GETTER(long long, longLongValue, _integer)
GETTER(unsigned long long, unsignedLongLongValue,
       static_cast<unsigned long long>(_integer))
GETTER(NSInteger, integerValue, _integer)
GETTER(NSUInteger, unsignedIntegerValue, static_cast<NSUInteger>(_integer))
GETTER(float, floatValue, static_cast<float>(_double))
GETTER(double, doubleValue, _double)
GETTER(BOOL, boolValue, _kind == 'd' ? _double != 0 : _integer != 0)

- (NSString *)stringValue {
  if (_kind == 'd') return [NSString stringWithFormat:@"%.17g", _double];
  if (_kind == 'Q') return [NSString stringWithFormat:@"%llu", _integer];
  return [NSString stringWithFormat:@"%lld", _integer];
}

GETTER(NSString *, description, [self stringValue])

- (BOOL)isEqual:(id)object {
  if (![object isKindOfClass:[NSNumber class]]) return NO;
  NSNumber *other = object;
  return _kind == 'd' || other->_kind == 'd' ? _double == other->_double
                                             : _integer == other->_integer;
}

GETTER(NSUInteger, hash, std::hash<double>()(_double))

@end
