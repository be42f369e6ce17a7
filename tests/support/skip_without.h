// Large captures are not part of the repository: tests that need one are skipped where it is absent.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>

#define SKIP_WITHOUT(file) \
  if (!std::filesystem::exists(file)) GTEST_SKIP() << std::filesystem::path(file).string() << " is absent"
