// The list of packets against OpenCSD's packet processor, which goes through whole streams by itself. Captures that are
// not part of the project are skipped where they are absent.
#include "arch/arm64/packet_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "tests/support/etm_opencsd.h"
#include "tests/support/packet_stretches.h"

namespace asof::arm64 {
namespace {

using test::CsdPacket;
using test::ListedPacket;

struct Compared {
  uint64_t packets = 0, bad = 0, unknown = 0, streams = 0, own = 0;
};

// Our name of OpenCSD's; empty: bytes that are no packet.
std::string name_of(const std::string& text) {
  static const std::map<std::string, std::string> kNames{
      {"I_ASYNC", "A-Sync"},
      {"I_DISCARD", "Discard"},
      {"I_OVERFLOW", "Overflow"},
      {"I_TRACE_INFO", "Trace-Info"},
      {"I_TIMESTAMP", "Timestamp"},
      {"I_TRACE_ON", "Trace-On"},
      {"I_FUNC_RET", "Function-Return"},
      {"I_EXCEPT", "Exception"},
      {"I_PE_RESET", "Exception"},
      {"I_TRANS_FAIL", "Exception"},
      {"I_EXCEPT_RTN", "Exception-Return"},
      {"I_CCNT_F1", "Cycle-Count.F1"},
      {"I_CCNT_F2", "Cycle-Count.F2"},
      {"I_CCNT_F3", "Cycle-Count.F3"},
      {"I_TRANS_ST", "Transaction-Start"},
      {"I_TRANS_COMMIT", "Transaction-Commit"},
      {"I_COMMIT", "Commit"},
      {"I_CANCEL_F1", "Cancel.F1"},
      {"I_CANCEL_F1_MISPRED", "Cancel.F1"},
      {"I_CANCEL_F2", "Cancel.F2"},
      {"I_CANCEL_F3", "Cancel.F3"},
      {"I_MISPREDICT", "Mispredict"},
      {"I_IGNORE", "Ignore"},
      {"I_EVENT", "Event"},
      {"I_CTXT", "Context"},
      {"I_ADDR_MATCH", "Address.Exact"},
      {"I_TS_MARKER", "Timestamp-Marker"},
      {"I_Q", "Q"},
      {"I_SRC_ADDR_MATCH", "Source-Address.Exact"},
  };
  const std::string name = text.substr(0, text.find(' '));
  if (const auto it = kNames.find(name); it != kNames.end()) return it->second;
  const auto form = [&](std::string_view prefix, std::string_view ours) {
    const std::string rest = name.substr(prefix.size());
    const std::string size = rest.starts_with("S_") ? "Short" : rest.starts_with("L_32") ? "32" : "64";
    return fmt::format("{}.{}", ours, size);
  };
  if (name.starts_with("I_ADDR_CTXT_")) return form("I_ADDR_CTXT_", "Address") + ".Context";
  if (name.starts_with("I_ADDR_")) return form("I_ADDR_", "Address");
  if (name.starts_with("I_SRC_ADDR_")) return form("I_SRC_ADDR_", "Source-Address");
  if (name.starts_with("I_SCR_ADDR_")) return form("I_SCR_ADDR_", "Source-Address");
  if (name.starts_with("I_ATOM_F")) return "Atom.F" + name.substr(8);
  if (name.starts_with("I_COND_")) return "Conditional";
  return {};
}

// The number behind `before` in OpenCSD's text; UINT64_MAX: there is none.
uint64_t number_after(const std::string& text, std::string_view before) {
  const size_t at = text.find(before);
  return at == std::string::npos ? UINT64_MAX : std::strtoull(text.c_str() + at + before.size(), nullptr, 0);
}

std::string exception_of(const std::string& text) {
  static const std::map<std::string, std::string> kNames{{"PE Reset", "PE reset"},
                                                         {"Debug Halt", "debug halt"},
                                                         {"Call", "call"},
                                                         {"Trap", "trap"},
                                                         {"System Error", "system error"},
                                                         {"Inst Debug", "instruction debug"},
                                                         {"Data Debug", "data debug"},
                                                         {"Alignment", "alignment"},
                                                         {"Inst Fault", "instruction fault"},
                                                         {"Data Fault", "data fault"},
                                                         {"IRQ", "IRQ"},
                                                         {"FIQ", "FIQ"}};
  for (const auto& [theirs, ours] : kNames) {
    if (text.find(";  " + theirs + ";") != std::string::npos) return ours;
  }
  return {};
}

void compare_numbers(const ListedPacket& line, const std::string& text) {
  const auto same = [&](const char* field, std::string_view theirs) {
    const uint64_t value = number_after(text, theirs);
    if (value != UINT64_MAX) {
      ASSERT_EQ(line.number(field), value) << field;
    }
  };
  if (line.name.find("Address") != std::string::npos) {
    ASSERT_NE(number_after(text, "Addr="), UINT64_MAX);
    same("address", "Addr=");
    if (line.name.ends_with("Exact")) same("entry", "Match., [");
  }
  if (line.name.ends_with("Context") && text.find("Same") == std::string::npos) {
    ASSERT_EQ(line.number("el"), number_after(text.substr(text.find("Ctxt: AArch")), "EL"));
    ASSERT_EQ(line.texts.contains("state") ? line.texts.at("state") : "",
              text.find("Ctxt: AArch64") != std::string::npos ? "AArch64" : "AArch32");
    ASSERT_EQ(line.number("ns"), text.find(" NS;") != std::string::npos ? 1U : 0U);
    if (line.numbers.contains("cid")) same("cid", "CID=");
    if (line.numbers.contains("vmid")) same("vmid", "VMID=");
  }
  if (line.name == "Timestamp") {
    ASSERT_NE(number_after(text, "Updated val = "), UINT64_MAX);
    same("timestamp", "Updated val = ");
    if (line.numbers.contains("cycles")) same("cycles", "CC=");
  }
  if (line.name == "Trace-Info") same("info", "INFO=");
  if (line.name == "Commit") same("elements", "Commit(");
  if (line.name.starts_with("Cancel")) same("elements", "Cancel(");
  // Of an unknown count OpenCSD says 0.
  if (line.name.starts_with("Cycle-Count") && !line.texts.contains("cycles")) same("cycles", "Count=");
  if (line.name == "Exception" && line.texts.contains("name") && text.starts_with("I_EXCEPT")) {
    ASSERT_EQ(line.texts.at("name"), exception_of(text));
  }
  if (line.texts.contains("atoms") && line.name.starts_with("Atom")) {
    const std::string theirs = text.substr(text.find("; ") + 2);
    ASSERT_EQ(theirs.substr(0, theirs.find_first_not_of("EN")), line.texts.at("atoms"));
  }
}

// What OpenCSD read of a stretch, with what this reader did. It reads on after what it does not know, this reader
// at the next sync point.
void compare_stretch(const Source& source, std::span<const uint8_t> bytes, uint64_t base,
                     std::span<const ListedPacket> lines, Compared& out) {
  const std::vector<CsdPacket> theirs = test::csd_packets(source, bytes);
  auto their = theirs.begin();
  bool lost =
      false;  // this OpenCSD is older than the packet: up to the next sync point it reads something else
  for (const ListedPacket& line : lines) {
    if (line.is_lost() || line.name == "PADDING") continue;
    const uint64_t at = line.offset - base;
    lost = line.name == "Instrumentation" || (lost && line.name != "A-Sync");
    if (lost) {
      ++out.unknown;
      while (their != theirs.end() && their->offset < at + line.size) ++their;
      continue;
    }
    while (their != theirs.end() && their->offset < at && out.bad != 0) ++their;
    if (!line.is_packet()) {
      if (line.name == "BAD") {
        ASSERT_NE(their, theirs.end());
        ASSERT_EQ(name_of(their->text), "") << their->text << " at " << their->offset << ", BAD at " << at;
      }
      ++out.bad;
      while (their != theirs.end() && their->offset < at + line.size) ++their;
      continue;
    }
    ASSERT_NE(their, theirs.end()) << "offset " << at << " " << line.name;
    SCOPED_TRACE(fmt::format("offset {}: {}; OpenCSD {}: {}", at, line.name, their->offset, their->text));
    ASSERT_EQ(their->offset, at);
    ASSERT_EQ(name_of(their->text), line.name);
    compare_numbers(line, their->text);
    if (testing::Test::HasFatalFailure()) return;
    ++their;
    ++out.packets;
  }
}

void compare_stream(const Capture& capture, size_t index, std::span<const ListedPacket> lines,
                    Compared& out) {
  ++out.streams;
  const Source& source = capture.arm64.sources[index];
  if (source.protocol == Protocol::kEtm3 || source.protocol == Protocol::kPtm) {  // OpenCSD's own reading
    out.own += static_cast<uint64_t>(std::ranges::count_if(lines, &ListedPacket::is_packet));
    return;
  }
  test::each_stretch(capture.streams[index], lines, [&](auto bytes, uint64_t begin, auto stretch) {
    Compared here;
    compare_stretch(source, bytes, begin, stretch, here);
    out.packets += here.packets;
    out.bad += here.bad;
    out.unknown += here.unknown;
  });
}

Compared compare_capture(const std::string& path) {
  Compared out;
  test::each_listed_stream(path,
                           [&](const Capture& capture, size_t index, std::span<const ListedPacket> lines) {
                             compare_stream(capture, index, lines, out);
                           });
  return out;
}

TEST(EtmPacketList, OwnCapturesAsOpenCsdReadsThem) {
  EXPECT_GT(compare_capture(ASOF_TEST_DATA "/demo-arm64/perf.data").packets, 7'000U);
  EXPECT_GT(compare_capture(ASOF_TEST_DATA "/board-arm64/capture.tar.xz").packets, 200'000U);
}

// Every snapshot below the folder of captures that are not part of the project.
TEST(EtmPacketList, CorpusAsOpenCsdReadsIt) {
  namespace fs = std::filesystem;
  if (!fs::exists(ASOF_SHARED_DIR "/corpus")) GTEST_SKIP() << "there is no corpus";
  Compared sum;
  for (const auto& entry : fs::directory_iterator(ASOF_SHARED_DIR "/corpus")) {
    if (!fs::exists(entry.path() / "snapshot.ini")) continue;
    const auto capture = open_capture(entry.path(), {});
    if (!capture || capture->machine == "x86_64" || capture->streams.empty()) continue;
    const Compared c = compare_capture(entry.path());
    sum.packets += c.packets;
    sum.bad += c.bad;
    sum.unknown += c.unknown;
    sum.own += c.own;
    if (HasFatalFailure()) return;
    sum.streams += c.streams;
  }
  fmt::print(
      "{} streams, {} packets compared, {} unknown to OpenCSD, {} places without a packet, {} of ETMv3 and "
      "PTM\n",
      sum.streams, sum.packets, sum.unknown, sum.bad, sum.own);
  EXPECT_GT(sum.packets, 0U);
  EXPECT_GT(sum.own, 0U);
}

}  // namespace
}  // namespace asof::arm64
