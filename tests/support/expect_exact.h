// Expectations about a decoded stream whose execution is known.
#pragma once
#include <gtest/gtest.h>

#include <ios>
#include <span>
#include <vector>

#include "tests/support/decode_capture.h"

namespace asof::test {

// Every executed instruction is decoded, with the bytes that ran, and nothing else.
inline void expect_exact(std::span<const DecodedInstruction> got, std::span<const Executed> truth) {
  const Difference d = compare(got, truth);
  EXPECT_EQ(d.wrong, 0U) << d.first;
  EXPECT_EQ(d.missing, 0U) << d.first;
  EXPECT_EQ(d.right, truth.size());
  if (got.size() != truth.size()) return;
  for (size_t i = 0; i < truth.size(); ++i) {
    const Executed& e = truth[i];
    ASSERT_EQ(got[i].bytes(), std::vector<uint8_t>(e.bytes.begin(), e.bytes.begin() + e.length))
        << "instruction " << i << " at " << std::hex << e.ip;
  }
}

}  // namespace asof::test
