// One record of any type, in a file of either byte order: the base of the tests of the records' contents.
#pragma once
#include "decoder/perf/records.h"
#include "tests/decoder/perf/perf_bytes.h"

namespace asof::test {

// One record of a file with one usual attribute; the file is kept alive.
struct OneRecord {
  PerfDataPtr data;
  Record record;
};

inline OneRecord one(bool big, uint32_t type, uint16_t misc, const PerfBytes::Body& body,
                     const PerfBytes::Attr& attr = {.ids = {5}}) {
  PerfBytes file(big);
  file.attr(attr);
  if (type < 64 && type != 9) {
    file.record(type, misc, {.time = 700, .cpu = 3, .pid = 10, .tid = 11, .id = 5}, body);
  } else {
    file.record(type, misc, body);
  }
  OneRecord result{open_bytes(file.file()), {}};
  const auto records = records_of(*result.data);
  EXPECT_EQ(records.size(), 1U);
  if (!records.empty()) result.record = records[0];
  return result;
}

class PerfRecords : public ::testing::TestWithParam<bool> {};

}  // namespace asof::test
