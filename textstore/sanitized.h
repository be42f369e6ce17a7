// Whether this is built with a sanitizer: GCC and clang say it differently.
#pragma once

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define ASOF_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define ASOF_THREAD_SANITIZER 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define ASOF_ADDRESS_SANITIZER 1
#endif
#ifdef __SANITIZE_THREAD__
#define ASOF_THREAD_SANITIZER 1
#endif
