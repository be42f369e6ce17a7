// Windows: where the trace of a recording lies in what the trace unit wrote.
#include "tools/board/machine/machine_truth.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/bytes.h"
#include "tests/tools/board/synced_trace.h"

namespace asof::machine {
namespace {

using test::ByteSink;
using test::put_psb;
using test::synced_trace;

std::vector<SyncMark> marks_of(const std::vector<size_t>& psbs, bool timed = true) {
  std::vector<SyncMark> out;
  for (const size_t at : psbs) out.push_back({at, timed ? 1000 + at : 0});
  return out;
}

const std::vector<size_t> kPsbs{0, 100, 250, 430};

// One sync point without a time says nothing; what follows it does.
TEST(MachineWindows, TraceWithoutTimesIsPlacedByItsBytes) {
  std::vector<uint8_t> written = synced_trace(500, kPsbs, false);
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i] == 0x06) written[i] = static_cast<uint8_t>(4 + 2 * (i / 100 % 3));
  }
  const std::span<const uint8_t> all(written);
  const std::vector<TracePiece> pieces{{0, 7000, all.subspan(250, 180)}};
  std::vector<FoundSync> syncs = find_psbs(all);
  ASSERT_EQ(syncs.size(), kPsbs.size());
  const std::map<int, std::vector<SyncMark>> marks{{0, marks_of(kPsbs, false)}};
  EXPECT_EQ(find_windows(pieces, marks, true, {{0, all}}).windows.at(0), (std::vector<Window>{{250, 430}}));
  EXPECT_EQ(find_windows(pieces, marks, true).unplaced, 1U);
  // Of no CPU.
  written[300] = 2;
  const std::vector<uint8_t> other = synced_trace(180, {0}, false);
  EXPECT_EQ(find_windows({{{0, 7000, other}}}, marks, true, {{0, all}}).unplaced, 1U);
}

// A machine that made two recordings without times: the first sync point alone is in both. perf pads the end.
TEST(MachineWindows, BytesTellTwoRecordingsApart) {
  std::vector<uint8_t> written = synced_trace(600, {0, 100, 250, 350, 430}, false);
  written[330] = 0x04, written[460] = 0x04;  // [0, 100) and [250, 350) differ in what follows the sync point
  written[60] = 0x08;
  const std::span<const uint8_t> all(written);
  std::vector<uint8_t> piece(all.begin() + 250, all.begin() + 480);
  piece.insert(piece.end(), 5, 0);
  const std::map<int, std::vector<SyncMark>> marks{{0, marks_of({0, 100, 250, 350, 430}, false)}};
  const auto report = find_windows({{{0, 7000, piece}}}, marks, true, {{0, all}});
  EXPECT_EQ(report.windows.at(0), (std::vector<Window>{{250, 485}}));

  // [0, 100) and [100, 200) are the same, [200, 300) is not: the first two of the piece go with the third.
  written = synced_trace(700, {0, 100, 200, 300, 400, 500, 600}, false);
  written[550] = 0x04;
  const std::vector<uint8_t> second(written.begin() + 300, written.begin() + 600);
  const std::map<int, std::vector<SyncMark>> more{{0, marks_of({0, 100, 200, 300, 400, 500, 600}, false)}};
  EXPECT_EQ(find_windows({{{0, 0, second}}}, more, true, {{0, written}}).windows.at(0),
            (std::vector<Window>{{300, 600}}));
}

// The same distance twice: the trace of an earlier recording on the machine would do as well, so there is no truth.
TEST(MachineWindows, TraceWithoutTimesThatFitsTwiceIsNotPlaced) {
  const std::vector<uint8_t> piece = synced_trace(180, {0, 100}, false);
  for (const bool twice : {false, true}) {
    const std::map<int, std::vector<SyncMark>> marks{{0, marks_of({0, twice ? 100U : 90U, 400, 500}, false)}};
    const auto report = find_windows({{{0, 7000, piece}}}, marks, true);
    EXPECT_EQ(report.unplaced, twice ? 1U : 0U);
    EXPECT_EQ(report.windows.contains(0), !twice);
  }
}

// TRBE: the driver skipped [300, 400) and [90, 100) is perf's padding.
TEST(MachineWindows, OnlyWhatAuxRecordsHaveIsTrace) {
  const std::vector<uint8_t> bytes(500);
  const auto buffer = [&](int cpu, uint64_t offset, uint64_t size) {
    AuxBuffer b;
    b.cpu = cpu;
    b.offset = offset;
    b.bytes = std::span(bytes).first(size);
    return b;
  };
  const auto record = [](int cpu, uint64_t offset, uint64_t size) {
    AuxRecord r;
    r.id.cpu = cpu;
    r.offset = offset;
    r.size = size;
    return r;
  };
  const std::vector<AuxBuffer> buffers{buffer(0, 0, 100), buffer(0, 90, 400), buffer(1, 0, 50)};
  const std::vector<AuxRecord> records{record(0, 0, 90), record(1, 0, 40), record(0, 90, 210),
                                       record(0, 300, 0), record(0, 400, 80)};
  std::vector<std::array<uint64_t, 3>> found;
  for (const TracePiece& p : recorded_pieces(buffers, records))
    found.push_back({static_cast<uint64_t>(p.cpu), p.offset, p.bytes.size()});
  EXPECT_EQ(found,
            (std::vector<std::array<uint64_t, 3>>{{0, 0, 90}, {0, 90, 210}, {0, 400, 80}, {1, 0, 40}}));
}

// In the ring of a thread each record is of the CPU that wrote it. With several threads a record is of its own.
TEST(MachineWindows, TraceOfAThreadIsOfTheCpuThatWroteIt) {
  const std::vector<uint8_t> bytes(100);
  const auto buffer = [&](int tid) {
    AuxBuffer b;
    b.cpu = -1;
    b.tid = tid;
    b.bytes = bytes;
    return b;
  };
  const auto record = [](int cpu, int tid, uint64_t offset, uint64_t size) {
    AuxRecord r;
    r.id.cpu = cpu;
    r.id.tid = tid;
    r.offset = offset;
    r.size = size;
    return r;
  };
  using Found = std::vector<std::array<int, 4>>;
  const auto found = [](const std::vector<AuxBuffer>& buffers, const std::vector<AuxRecord>& records) {
    Found out;
    for (const TracePiece& p : recorded_pieces(buffers, records))
      out.push_back({p.tid, p.cpu, static_cast<int>(p.offset), static_cast<int>(p.bytes.size())});
    return out;
  };
  const std::vector<AuxRecord> records{record(1, 7, 0, 60), record(0, 9, 60, 40)};
  EXPECT_EQ(found({buffer(7)}, records), (Found{{7, 1, 0, 60}, {7, 0, 60, 40}}));
  EXPECT_EQ(found({buffer(7), buffer(9)}, records), (Found{{7, 1, 0, 60}, {9, 0, 60, 40}}));
}

TEST(MachineWindows, AWholeTraceIsOneWindow) {
  const auto bytes = synced_trace(500, kPsbs);
  const std::span<const uint8_t> all(bytes);
  // The second piece begins within a PSB.
  const std::vector<TracePiece> pieces{{0, 0, all.first(110)}, {0, 110, all.subspan(110)}};
  const auto report = find_windows(pieces, {{0, marks_of(kPsbs)}}, true);
  EXPECT_EQ(report.windows.at(0), (std::vector<Window>{{0, 500}}));
  EXPECT_EQ(report.pieces, 2U);
  EXPECT_EQ(report.unplaced, 0U);
}

// Without a sync point of its own, the second piece can be placed only as what follows the first.
TEST(MachineWindows, APaddedPieceIsContinuedWhereTheTraceEnded) {
  const auto bytes = synced_trace(500, {0, 300});
  std::vector<uint8_t> first(bytes.begin(), bytes.begin() + 101);
  first.resize(104);
  const std::span<const uint8_t> all(bytes);
  const std::vector<TracePiece> pieces{
      {0, 0, first}, {0, 101, all.subspan(101, 150)}, {0, 251, all.subspan(251)}};
  const auto report = find_windows(pieces, {{0, marks_of({0, 300})}}, true);
  EXPECT_EQ(report.windows.at(0), (std::vector<Window>{{0, 500}}));
  EXPECT_EQ(report.unplaced, 0U);
}

TEST(MachineWindows, ASnapshotBeginsAtItsFirstPsb) {
  const auto bytes = synced_trace(500, kPsbs);
  const std::span<const uint8_t> all(bytes);
  // Two snapshots of a ring, whose offsets say nothing about the trace; the second overlaps the first.
  const std::vector<TracePiece> pieces{{0, 7000, all.subspan(50, 250)}, {0, 7200, all.subspan(240, 200)}};
  const auto report = find_windows(pieces, {{0, marks_of(kPsbs)}}, true);
  // The second one ends within the PSB at 430.
  EXPECT_EQ(report.windows.at(0), (std::vector<Window>{{100, 440}}));
}

TEST(MachineWindows, WhatTheRecordingLostIsBetweenWindows) {
  const auto bytes = synced_trace(500, kPsbs);
  const std::span<const uint8_t> all(bytes);
  const std::vector<TracePiece> pieces{{0, 0, all.first(90)}, {0, 300, all.subspan(240, 100)}};
  const auto report = find_windows(pieces, {{0, marks_of(kPsbs)}}, true);
  EXPECT_EQ(report.windows.at(0), (std::vector<Window>{{0, 90}, {250, 340}}));
}

TEST(MachineWindows, WithoutTimesTheDistancesOfSyncPointsPlaceAPiece) {
  const auto bytes = synced_trace(500, kPsbs, false);
  const std::span<const uint8_t> all(bytes);
  const std::vector<TracePiece> pieces{{0, 0, all.subspan(60, 440)}};
  const auto report = find_windows(pieces, {{0, marks_of(kPsbs, false)}}, true);
  EXPECT_EQ(report.windows.at(0), (std::vector<Window>{{100, 500}}));
}

TEST(MachineWindows, APieceOfAnyCpuIsPlacedByTime) {
  const auto first = synced_trace(300, {0, 100}), second = synced_trace(300, {20, 220});
  std::vector<uint8_t> both(first.begin(), first.begin() + 150);
  both.insert(both.end(), second.begin() + 20, second.end());
  const std::vector<TracePiece> pieces{{-1, 0, both}};
  const auto report = find_windows(pieces, {{0, marks_of({0, 100})}, {1, marks_of({20, 220})}}, true);
  EXPECT_EQ(report.windows.at(0), (std::vector<Window>{{0, 150}}));
  EXPECT_EQ(report.windows.at(1), (std::vector<Window>{{20, 300}}));
}

TEST(MachineWindows, TraceOfAnotherMachineIsNotPlaced) {
  const auto bytes = synced_trace(500, kPsbs);
  const std::vector<TracePiece> pieces{{0, 0, bytes}};
  const auto report = find_windows(pieces, {{0, {{0, 5}, {90, 6}}}}, true);
  EXPECT_EQ(report.unplaced, 1U);
}

}  // namespace
}  // namespace asof::machine
