// RapidJSON that throws std::bad_alloc: its own allocator gives null pointers, which it uses.
#pragma once
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <cstdlib>
#include <new>

namespace asof {

// The concept Allocator of rapidjson/allocators.h.
struct JsonMemory {
  static constexpr bool kNeedFree = true;
  static void* Malloc(size_t size) { return size == 0 ? nullptr : checked(std::malloc(size)); }
  static void* Realloc(void* old, size_t /*old_size*/, size_t size) {
    if (size != 0) return checked(std::realloc(old, size));
    std::free(old);
    return nullptr;
  }
  static void Free(void* p) noexcept { std::free(p); }

 private:
  static void* checked(void* p) {
    if (p == nullptr) throw std::bad_alloc();
    return p;
  }
};

using JsonBuffer = rapidjson::GenericStringBuffer<rapidjson::UTF8<>, JsonMemory>;
using JsonWriter = rapidjson::Writer<JsonBuffer, rapidjson::UTF8<>, rapidjson::UTF8<>, JsonMemory>;

}  // namespace asof
