// Foundation and classes of the program's own, each with what has to come out.
#include "extension.h"

#include <c10/util/Exception.h>

namespace {

struct Span {
  long begin, end, step;  // too large for registers
};

}  // namespace

@protocol Counting
- (int)count;
@end

@interface Tally : NSObject {
  char _first;
  int _count;
}
- (void)add:(int)more;
- (Span)span;
@end

// Implemented before its superclass.
@interface NamedTally : Tally <Counting> {
  double _weight;
}
@property(retain) NSString *name;
@property double weight;
@end

static NamedTally *tally_of_load = nil;

@implementation NamedTally
@synthesize name = _name;
@synthesize weight = _weight;

+ (void)load {
  tally_of_load = [[NamedTally alloc] init];
  tally_of_load.weight = 1.5;
}

- (Span)span {
  Span span = [super span];
  return {span.begin, span.end, 2};
}

- (int)count {
  return _count;
}

- (void)dealloc {
  [_name release];
  [super dealloc];
}

@end

@implementation Tally

- (void)add:(int)more {
  _count += more;
}

- (Span)span {
  return {_first, _count, 1};
}

@end

@interface Tally (Twice)
- (void)addTwice:(int)more;
@end

@implementation Tally (Twice)

- (void)addTwice:(int)more {
  [self add:more];
  [self add:more];
}

@end

const std::vector<Case> &FoundationChecks() {
  static const std::vector<Case> checks = {
      {"strings",
       [] {
         NSString *text = [NSString
             stringWithFormat:@"%@ %d %5.2f %s %lu %x %%", @"a", -3, 2.5, "s",
                              static_cast<unsigned long>(7), 255];
         TORCH_CHECK([text isEqualToString:@"a -3  2.50 s 7 ff %"],
                     [text UTF8String]);
         TORCH_CHECK([text length] == 19 && [text hasPrefix:@"a -"]);
         TORCH_CHECK([@"gr\u00fc\u00df" length] == 4);
         TORCH_CHECK([@"x" isEqual:[NSString stringWithUTF8String:"x"]]);
         TORCH_CHECK([@"x" hash] == [[NSString stringWithUTF8String:"x"] hash]);
         TORCH_CHECK(
             [[@"ab" stringByAppendingString:@"cd"] isEqualToString:@"abcd"]);
       }},
      {"collections",
       [] {
         NSArray *array = @[ @"one", @2, @3.5 ];
         TORCH_CHECK([array count] == 3);
         TORCH_CHECK([[array objectAtIndex:1] intValue] == 2);
         TORCH_CHECK([[array lastObject] doubleValue] == 3.5);
         NSUInteger seen = 0;
         for (id object in array) seen += object != nil;
         TORCH_CHECK(seen == 3);
         NSDictionary *dictionary = @{@"a" : @1, @"b" : @2};
         TORCH_CHECK([[dictionary objectForKey:@"b"] intValue] == 2);
         TORCH_CHECK([dictionary objectForKey:@"c"] == nil);
         NSMutableDictionary *more = [NSMutableDictionary dictionary];
         [more setObject:@3 forKey:@"c"];
         [more removeObjectForKey:@"c"];
         TORCH_CHECK([more count] == 0);
       }},
      {"reference counts",
       [] {
         NSMutableArray *array = [[NSMutableArray alloc] init];
         NSNumber *number = [[NSNumber numberWithInt:1] retain];
         NSUInteger before = [number retainCount];
         [array addObject:number];
         TORCH_CHECK([number retainCount] == before + 1);
         [array release];
         TORCH_CHECK([number retainCount] == before);
         @autoreleasepool {
           [[number retain] autorelease];
           TORCH_CHECK([number retainCount] == before + 1);
         }
         TORCH_CHECK([number retainCount] == before);
         [number release];
       }},
      {"C++ exceptions in Objective-C++",
       [] {
         bool caught = false;
         @autoreleasepool {
           try {
             TORCH_CHECK(false, "typed");
           } catch (const c10::Error &error) {
             caught = true;
           }
         }
         TORCH_CHECK(caught);
       }},
      {"operating system version",
       [] {
         NSOperatingSystemVersion wanted = {15, 0, 0};
         TORCH_CHECK([[NSProcessInfo processInfo]
             isOperatingSystemAtLeastVersion:wanted]);
         wanted.majorVersion = 99;
         TORCH_CHECK(![[NSProcessInfo processInfo]
             isOperatingSystemAtLeastVersion:wanted]);
       }},
      {"subscripts",
       [] {
         NSArray<NSNumber *> *array = @[ @1, @2 ];
         TORCH_CHECK([array[1] intValue] == 2);
         NSMutableArray *more = [NSMutableArray array];
         more[0] = @"one";
         more[1] = @"two";
         more[0] = array[0];
         TORCH_CHECK([more count] == 2 && [more[0] intValue] == 1);
         TORCH_CHECK([more[1] isEqual:@"two"]);
         NSDictionary *dictionary = @{@"a" : @1};
         TORCH_CHECK([dictionary[@"a"] intValue] == 1 && !dictionary[@"b"]);
         NSMutableDictionary *entries = [NSMutableDictionary dictionary];
         entries[@"c"] = more;
         TORCH_CHECK(entries[@"c"][1] == more[1] && [entries count] == 1);
         entries[@"c"] = nil;
         TORCH_CHECK([entries count] == 0);
       }},
      {"classes of the program",
       [] {
         TORCH_CHECK(tally_of_load.weight == 1.5);
         NamedTally *tally = [[NamedTally alloc] init];
         TORCH_CHECK(class_getInstanceSize([NamedTally class]) == 4 * 8);
         tally.name = [NSString stringWithFormat:@"%d", 7];
         tally.weight = 0.5;
         [tally addTwice:3];
         id<Counting> counting = tally;
         TORCH_CHECK([counting count] == 6 && tally.weight == 0.5);
         TORCH_CHECK([tally.name isEqual:@"7"]);
         Span span = [tally span];
         TORCH_CHECK(span.begin == 0 && span.end == 6 && span.step == 2);
         TORCH_CHECK([tally conformsToProtocol:@protocol(Counting)]);
         TORCH_CHECK(![[Tally class] conformsToProtocol:@protocol(Counting)]);
         [tally release];
       }},
  };
  return checks;
}
