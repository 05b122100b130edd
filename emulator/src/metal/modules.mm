// Lets GCC's Objective-C runtime load modules that clang compiles for ObjFW's
// runtime.  For GCC's runtime, clang refuses subscripts on collections.
//
// The two runtimes differ in three points.  A module and its protocols have
// another version.  The lookup of a method that returns a struct in memory has
// functions of its own.  A class counts its size and the offsets of its
// instance variables from the end of its superclass, whose size the runtime
// adds.
#include <dlfcn.h>
#include <objc/message.h>
#include <objc/runtime.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr unsigned long kModuleVersionOfGcc = 8;
constexpr uintptr_t kProtocolVersionOfGcc = 2;
constexpr uintptr_t kProtocolVersionOfObjFW = 3;

// The compiler's data, as far as this file reads it.

struct ProtocolList;

struct CompiledProtocol {
  uintptr_t version;  // the runtime puts a class here
  const char *name;
  ProtocolList *adopted;
};

struct ProtocolList {
  ProtocolList *next;
  size_t count;
  CompiledProtocol *protocols[];
};

struct InstanceVariables {
  int count;
  struct {
    const char *name;
    const char *type;
    int offset;
  } list[];
};

struct CompiledClass {
  CompiledClass *metaclass;
  const char *superclass;  // its name; the runtime puts the class here
  const char *name;
  long version;
  unsigned long info;
  long size;  // up to 0: the size of its own variables alone, negated
  InstanceVariables *variables;
  void *of_the_runtime[4];
  ProtocolList *protocols;
};

struct CompiledCategory {
  const char *names[2];
  void *methods[2];
  ProtocolList *protocols;
};

struct Module {
  unsigned long version;
  unsigned long size;
  const char *name;
  struct {
    unsigned long selector_count;
    void *selectors;
    unsigned short class_count;
    unsigned short category_count;
    void *definitions[];
  } *symbols;
};

void SetVersion(ProtocolList *list) {
  for (; list; list = list->next)
    for (size_t i = 0; i < list->count; ++i) {
      CompiledProtocol *protocol = list->protocols[i];
      if (protocol->version != kProtocolVersionOfObjFW) continue;
      protocol->version = kProtocolVersionOfGcc;
      SetVersion(protocol->adopted);
    }
}

// Classes without a layout: the classes of the module that is being loaded, and
// classes that wait for the module of their superclass.
std::vector<CompiledClass *> &Waiting() {
  static std::vector<CompiledClass *> classes;
  return classes;
}

// Adds the superclass's size.  Returns whether this size is known.
bool LayOut(CompiledClass *compiled) {
  if (compiled->size > 0) return true;
  size_t begin = 0;
  if (compiled->superclass) {
    Class superclass = objc_lookUpClass(compiled->superclass);
    for (CompiledClass *other : Waiting())
      if (!strcmp(other->name, compiled->superclass)) {
        if (!LayOut(other)) return false;
        superclass = reinterpret_cast<Class>(other);
      }
    if (!superclass) return false;
    begin = class_getInstanceSize(superclass);
  }
  compiled->size = static_cast<long>(begin) - compiled->size;
  if (InstanceVariables *variables = compiled->variables)
    for (int i = 0; i < variables->count; ++i)
      variables->list[i].offset += static_cast<int>(begin);
  return true;
}

}  // namespace

// Each module calls this function while its library is loaded, one module after
// another.  The linker takes this definition and the next two instead of
// libobjc's, as with objc_msg_lookup (see runtime.mm).
extern "C" __attribute__((visibility("default"))) void __objc_exec_class(
    Module *module) {
  using Load = void (*)(Module *);
  static Load load =
      reinterpret_cast<Load>(dlsym(RTLD_NEXT, "__objc_exec_class"));
  module->version = kModuleVersionOfGcc;
  auto *symbols = module->symbols;
  void **definition = symbols->definitions;
  for (int i = 0; i < symbols->class_count; ++i) {
    auto *compiled = static_cast<CompiledClass *>(*definition++);
    SetVersion(compiled->protocols);
    Waiting().push_back(compiled);
  }
  for (int i = 0; i < symbols->category_count; ++i)
    SetVersion(static_cast<CompiledCategory *>(*definition++)->protocols);
  // A class's +load runs within the call of the runtime, and may use the class.
  for (CompiledClass *compiled : Waiting()) LayOut(compiled);
  load(module);
  std::erase_if(Waiting(),
                [](CompiledClass *compiled) { return compiled->size > 0; });
}

extern "C" __attribute__((visibility("default"))) IMP
objc_msg_lookup_stret(id receiver, SEL selector) {
  return objc_msg_lookup(receiver, selector);
}

extern "C" __attribute__((visibility("default"))) IMP
objc_msg_lookup_super_stret(struct objc_super *receiver, SEL selector) {
  return objc_msg_lookup_super(receiver, selector);
}
