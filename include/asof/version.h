// The version of these headers, and of the library that is loaded. C and C++.
//
// Semantic versioning; before 1.0 a new minor version may break callers. The soname (libasof.so.0) and the
// namespace asof::v0 change whenever the binary interface does, so two versions can be loaded side by side.
#pragma once

#define ASOF_VERSION_MAJOR 0
#define ASOF_VERSION_MINOR 2
#define ASOF_VERSION_PATCH 0

#ifdef __cplusplus
#include "asof/export.h"

namespace asof::v0 {

// Of the library, "0.2.0". Static storage, thread-safe.
ASOF_EXPORT const char* version() noexcept;

}  // namespace asof::v0

#ifndef ASOF_LIBRARY  // the library has older names of its own in asof
namespace asof {
using namespace v0;
}
#endif
#endif
