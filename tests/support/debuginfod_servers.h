// Servers of debuginfod, named by the environment while this is alive.
#pragma once
#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace asof::test {

inline bool have_debuginfod() {
  void* const library = ::dlopen("libdebuginfod.so.1", RTLD_NOW);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

class DebuginfodServers {
 public:
  DebuginfodServers(const std::string& urls, const std::string& cache) {
    ::setenv("DEBUGINFOD_URLS", urls.c_str(), 1);
    ::setenv("DEBUGINFOD_CACHE_PATH", cache.c_str(), 1);
  }
  ~DebuginfodServers() {
    ::unsetenv("DEBUGINFOD_URLS");
    ::unsetenv("DEBUGINFOD_CACHE_PATH");
  }
  DebuginfodServers(const DebuginfodServers&) = delete;
  DebuginfodServers& operator=(const DebuginfodServers&) = delete;
};

}  // namespace asof::test

#define ASOF_SKIP_WITHOUT_DEBUGINFOD()  \
  if (!::asof::test::have_debuginfod()) \
  GTEST_SKIP() << "libdebuginfod is not installed (Debian package libdebuginfod1)"
