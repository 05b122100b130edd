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
  NSString *_name;
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
         NSString *text =
             [NSString stringWithFormat:@"%@ %d %s %%", @"a", -3, "s"];
         TORCH_CHECK([text isEqualToString:@"a -3 s %"], [text UTF8String]);
         TORCH_CHECK([@"gr\u00fc\u00df" length] == 4);
         TORCH_CHECK([@"x" isEqual:[NSString stringWithUTF8String:"x"]]);
         TORCH_CHECK([@"x" hash] == [[NSString stringWithUTF8String:"x"] hash]);
       }},
      {"collections",
       [] {
         NSArray *array = @[ @"one", @"two" ];
         TORCH_CHECK([array count] == 2);
         TORCH_CHECK([[array objectAtIndex:1] isEqual:@"two"]);
         NSUInteger seen = 0;
         for (id object in array) seen += object != nil;
         TORCH_CHECK(seen == 2);
         NSDictionary *dictionary = @{@"a" : @"1", @"b" : @"2"};
         TORCH_CHECK([dictionary count] == 2);
         TORCH_CHECK([[dictionary objectForKey:@"b"] isEqual:@"2"]);
         TORCH_CHECK([dictionary objectForKey:@"c"] == nil);
       }},
      {"reference counts",
       [] {
         NSString *text = [[NSString stringWithUTF8String:"x"] retain];
         NSUInteger before = [text retainCount];
         @autoreleasepool {
           TORCH_CHECK([[@[ text ] objectAtIndex:0] retainCount] == before + 1);
         }
         TORCH_CHECK([text retainCount] == before);
         [text release];
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
         [tally release];
       }},
  };
  return checks;
}
