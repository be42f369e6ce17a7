// What the files of the C interface share: handles, errors, structures that grow. No exception leaves it.
#pragma once
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "api/convert.h"
#include "asof/asof.h"
#include "asof/asof_c.h"

namespace v0 = asof::v0;

struct asof_error {
  v0::Error error;
};

struct asof_capture {
  v0::Capture capture;
  v0::Text text;
};

namespace asof::c {

inline void set_error(asof_error** error, v0::Error e) {
  if (error != nullptr) *error = new (std::nothrow) asof_error{std::move(e)};
}

inline void bad_value(asof_error** error, const char* what, const char* reason) {
  set_error(error, {v0::text_of(asof::Code::kBadOption), what, std::nullopt, reason, ""});
}

// Runs `body`; what it throws, which is never about the input, becomes an error and `failed`.
template <class T, class Body>
T guarded(asof_error** error, T failed, Body&& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    try {
      set_error(error, {v0::text_of(asof::Code::kNoResources), "", std::nullopt, e.what(), ""});
    } catch (...) {
      if (error != nullptr) *error = nullptr;  // not even memory for that
    }
  }
  return failed;
}

// Structures grow at their end: as much as the caller and the library both know.
inline constexpr size_t kMostSize = 4096;
inline bool possible(size_t size) { return size >= sizeof(size_t) && size <= kMostSize; }

template <class T>
inline bool read_struct(const T* from, T& to) {
  if (from == nullptr) return true;
  if (!possible(from->size)) return false;
  std::memcpy(&to, from, std::min(from->size, sizeof(T)));
  return true;
}

template <class T>
inline bool write_struct(T from, T* to) {
  if (to == nullptr || !possible(to->size)) return false;
  from.size = to->size;
  std::memcpy(to, &from, std::min(to->size, sizeof(T)));
  return true;
}

inline std::string text_or_empty(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

// The views are of zero-terminated strings, all of them.
inline const char* c_string(std::string_view text) { return text.data() == nullptr ? "" : text.data(); }

// The element at `index`, written by fill(element); ASOF_END where there is none.
template <class List, class Out, class Make>
asof_status element(const List& list, size_t index, Out* out, Make&& make) {
  if (index >= list.size()) return ASOF_END;
  return write_struct<Out>(make(list[index]), out) ? ASOF_OK : ASOF_FAILED;
}

}  // namespace asof::c
