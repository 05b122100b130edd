// Arrays and dictionaries of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/fatal.h"
#include "metal/foundation_internal.h"

using mps_emulator::Fatal;
using mps_emulator::ToNSString;

namespace {

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

}  // namespace

// A method that Foundation.h does not declare.
@interface NSDictionary (MPSEmulator)
- (void)putObject:(id)anObject forKey:(id)aKey;
@end

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

GETTER(NSUInteger, count, ObjectsOf(_objects)->size())

- (id)objectAtIndex:(NSUInteger)index {
  if (index >= [self count])
    Fatal("-[NSArray objectAtIndex:]: index %lu is beyond the %lu elements",
          index, [self count]);
  return (*ObjectsOf(_objects))[index];
}

- (id)objectAtIndexedSubscript:(NSUInteger)idx {
  return [self objectAtIndex:idx];
}

GETTER(id, firstObject, [self count] ? [self objectAtIndex:0] : nil)
GETTER(id, lastObject,
       [self count] ? [self objectAtIndex:[self count] - 1] : nil)

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
  // The emulator reports no mutation during an enumeration.
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

// The index one past the end appends.
- (void)setObject:(id)obj atIndexedSubscript:(NSUInteger)idx {
  if (idx == [self count]) return [self addObject:obj];
  if (idx > [self count])
    Fatal("-[NSMutableArray setObject:atIndexedSubscript:]: index %lu is "
          "beyond the %lu elements",
          idx, [self count]);
  mps_emulator::Assign(&(*ObjectsOf(_objects))[idx], obj);
}

- (void)removeLastObject {
  if (![self count])
    Fatal("-[NSMutableArray removeLastObject]: the array is empty");
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

GETTER(NSUInteger, count, EntriesOf(_entries)->size())

- (id)objectForKey:(id)aKey {
  auto found = EntriesOf(_entries)->find(aKey);
  return found == EntriesOf(_entries)->end() ? nil : found->second;
}

- (id)objectForKeyedSubscript:(id)key {
  return [self objectForKey:key];
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

// An object of nil removes the entry.
- (void)setObject:(id)obj forKeyedSubscript:(id)key {
  if (!obj) return [self removeObjectForKey:key];
  [self setObject:obj forKey:key];
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
