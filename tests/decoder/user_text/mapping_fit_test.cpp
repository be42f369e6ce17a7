// Which mappings program headers allow: those that loaders made of this process, and not those beside them.
#include "decoder/user_text/mapping_fit.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/decoder/user_text/user_fixture.h"

namespace asof {
namespace {

struct Area {
  AddrRange range;
  uint64_t pgoff = 0;
  std::string path;
};

// Code of files in this process, by /proc/self/maps.
std::vector<Area> code_of_this_process() {
  std::ifstream in("/proc/self/maps");
  std::vector<Area> out;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string range, rights, pgoff, device, inode;
    Area area;
    words >> range >> rights >> pgoff >> device >> inode >> area.path;
    if (rights.find('x') == std::string::npos || !area.path.starts_with('/')) continue;
    area.range.begin = std::stoull(range, nullptr, 16);
    area.range.end = std::stoull(range.substr(range.find('-') + 1), nullptr, 16);
    area.pgoff = std::stoull(pgoff, nullptr, 16);
    out.push_back(area);
  }
  return out;
}

TEST(MappingFit, OfWhatTheKernelAndTheLoaderMapped) {
  const std::vector<Area> areas = code_of_this_process();
  ASSERT_GE(areas.size(), 2U);  // the program and its libraries
  for (const Area& area : areas) {
    const auto elf = ElfImage::open(area.path);
    ASSERT_TRUE(elf.has_value()) << area.path;
    EXPECT_TRUE(can_be_mapped(**elf, area.range, area.pgoff)) << area.path;
    const AddrRange part{area.range.begin, area.range.begin + 4096};
    EXPECT_TRUE(can_be_mapped(**elf, part, area.pgoff)) << area.path;  // as mprotect() divides it
    for (unsigned bit = 0; bit < 48; ++bit) {
      const uint64_t flipped = uint64_t{1} << bit;
      EXPECT_FALSE(can_be_mapped(**elf, area.range, area.pgoff ^ flipped)) << area.path << " bit " << bit;
      if (bit >= 12) continue;
      const AddrRange moved{area.range.begin ^ flipped, area.range.end ^ flipped};
      EXPECT_FALSE(can_be_mapped(**elf, moved, area.pgoff)) << area.path << " bit " << bit;
    }
    const AddrRange longer{area.range.begin, area.range.end + 4096};
    EXPECT_FALSE(can_be_mapped(**elf, longer, area.pgoff)) << area.path;
  }
}

class MisplacedText : public test::User {
 protected:
  // The program's code page, as a record has it that is wrong.
  void open_mapped(Addr addr, uint64_t pgoff) {
    file("/bin/a", 0x90, 1);
    r.writer.mmap2({.pid = 7,
                    .tid = 7,
                    .addr = addr,
                    .len = 0x1000,
                    .pgoff = pgoff,
                    .filename = "/bin/a",
                    .build_id = test::Bytes(20, 1)},
                   {});
    r.writer.itrace_start(7, 7, test::Recording::at(10));
    open();
  }
};

TEST_F(MisplacedText, IsWhereItWasLinked) {
  open_mapped(test::kCode, 0x1000);
  EXPECT_EQ(test::find_notice(*capture, Code::kMappingDoesNotFit), nullptr);
  EXPECT_FALSE(is_unsure(test::kCode, 100));
}

TEST_F(MisplacedText, OfAnotherPageOfTheFileIsUnsure) {
  open_mapped(test::kCode, 0);
  const Notice* const notice = test::find_notice(*capture, Code::kMappingDoesNotFit);
  ASSERT_NE(notice, nullptr);
  EXPECT_EQ(notice->where, "/bin/a");
  EXPECT_NE(notice->reason.find("0x1000 bytes from 0x0 of it at 0x401000"), std::string::npos)
      << notice->reason;
  EXPECT_TRUE(is_unsure(test::kCode, 100));
}

TEST_F(MisplacedText, AtAnotherAddressIsUnsure) {
  open_mapped(test::kCode ^ 0x4000, 0x1000);
  EXPECT_NE(test::find_notice(*capture, Code::kMappingDoesNotFit), nullptr);
  EXPECT_TRUE(is_unsure(test::kCode ^ 0x4000, 100));
}

}  // namespace
}  // namespace asof
