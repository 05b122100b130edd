// NSError of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>

#include <string>

#include "metal/foundation_internal.h"

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

@implementation NSError

@synthesize domain = _domain, code = _code, userInfo = _userInfo;

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

- (NSString *)localizedDescription {
  NSString *text = [_userInfo objectForKey:NSLocalizedDescriptionKey];
  if (text) return text;
  return [NSString stringWithFormat:@"The operation couldn't be completed. "
                                    @"(%@ error %ld.)",
                                    _domain, _code];
}

GETTER(NSString *, description,
       [NSString stringWithFormat:@"Error Domain=%@ Code=%ld \"%@\"", _domain,
                                  _code, [self localizedDescription]])

@end
