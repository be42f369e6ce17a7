#include "decoder/lines/debuginfod.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

namespace asof {
namespace {

constexpr const char* kLibrary = "libdebuginfod.so.1";

std::unexpected<Error> failure(std::string where, std::string reason, std::string hint) {
  return fail(Code::kDebuginfodFailed, std::move(where), Error::kNoOffset, std::move(reason),
              std::move(hint));
}

}  // namespace

Debuginfod::~Debuginfod() {
  if (client_ != nullptr) end_(client_);
}

// debuginfod_find_debuginfo(3), "CACHE".
std::string Debuginfod::cache_folder() {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (std::string given = value("DEBUGINFOD_CACHE_PATH"); !given.empty()) return given;
  const std::string home = value("HOME"), caches = value("XDG_CACHE_HOME");
  std::error_code ignored;
  if (!home.empty() && std::filesystem::is_directory(home + "/.debuginfod_client_cache", ignored))
    return home + "/.debuginfod_client_cache";
  if (!caches.empty()) return caches + "/debuginfod_client";
  return home.empty() ? home : home + "/.cache/debuginfod_client";
}

Result<void> Debuginfod::load() {
  const char* urls = std::getenv("DEBUGINFOD_URLS");
  if (urls == nullptr || *urls == 0) {
    return failure("DEBUGINFOD_URLS", "it is not set, so no server is known",
                   "for Debian: DEBUGINFOD_URLS=https://debuginfod.debian.net");
  }
  // It stays loaded: what the libraries below it allocate once for a process is lost when they go.
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr)
    return failure(kLibrary, "it cannot be loaded", "install the package libdebuginfod1");
  const auto begin = reinterpret_cast<void* (*)()>(::dlsym(library, "debuginfod_begin"));
  find_ = reinterpret_cast<decltype(find_)>(::dlsym(library, "debuginfod_find_debuginfo"));
  end_ = reinterpret_cast<decltype(end_)>(::dlsym(library, "debuginfod_end"));
  if (begin == nullptr || find_ == nullptr || end_ == nullptr)
    return failure(kLibrary, "it lacks functions", "install elfutils 0.178 or later");
  client_ = begin();
  if (client_ == nullptr) return failure(kLibrary, "it does not start", "");
  return {};
}

Result<std::string> Debuginfod::debug_file(const std::string& build_id) {
  if (failed_ || build_id.empty()) return std::string();
  if (client_ == nullptr) {
    if (auto ok = load(); !ok) {
      failed_ = true;
      return std::unexpected(ok.error());
    }
  }
  char* text = nullptr;
  // A length of 0: the id is text.
  const int file = find_(client_, reinterpret_cast<const unsigned char*>(build_id.c_str()), 0, &text);
  const std::unique_ptr<char, decltype(&std::free)> path(text, &std::free);
  if (file >= 0) {
    ::close(file);
    return std::string(path ? path.get() : "");
  }
  if (file == -ENOENT) return std::string();
  return failure(fmt::format("build-id {}", build_id),
                 fmt::format("the debuginfod servers gave nothing: {}", std::strerror(-file)),
                 "look at DEBUGINFOD_URLS, or leave --debuginfod out");
}

}  // namespace asof
