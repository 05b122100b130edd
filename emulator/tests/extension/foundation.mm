// Foundation, each class with what has to come out.
#include "extension.h"

#include <c10/util/Exception.h>

const std::vector<Case> &FoundationChecks() {
  static const std::vector<Case> checks = {
      {"strings",
       [] {
         NSString *text = [NSString stringWithUTF8String:"a"];
         TORCH_CHECK([text isEqualToString:@"a"], [text UTF8String]);
         TORCH_CHECK([@"x" isEqual:[NSString stringWithUTF8String:"x"]]);
       }},
      {"arrays",
       [] {
         NSArray *array = @[ @"one", @"two" ];
         TORCH_CHECK([array count] == 2);
         TORCH_CHECK([[array objectAtIndex:1] isEqual:@"two"]);
         NSUInteger seen = 0;
         for (id object in array) seen += object != nil;
         TORCH_CHECK(seen == 2);
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
  };
  return checks;
}
