// Changes of text for people: all of one range (asof text --history), and what differs between two instants
// (asof text --diff T1 T2).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/model/text_mechanism.h"

namespace asof {

struct TextChange {
  Time time = kTimeMin;
  // If no record shows the change, only that it lies between two instants: the earlier one; else `time`.
  Time not_before = kTimeMin;
  AddrRange range;
  Recognized who;
  const Version* before = nullptr;  // of a change without a poke; nullptr: nothing known
  const Version* after = nullptr;
  const PokeRecord* poke = nullptr;
  uint32_t poke_number = 0;  // index in TextStore::pokes()
};

// Every change of a range, in order of time: pokes, content that came or went, ends of BPF programs, and
// points where the records contradict each other (a change is missing). `cells` must be those of the range
// and outlive the result.
std::vector<TextChange> changes_of(const Capture& capture, const Recognizer& recognizer, Space space,
                                   AddrRange range, std::span<const Cell> cells);

// What is said of a range without changes: "no change is recorded", and how much of it may have changed without a record.
std::string unchanged_text(std::span<const Cell> cells, AddrRange range);

// What one site was at both instants.
struct SiteDifference {
  AddrRange range;
  Recognized who;                   // of the last change in between
  const Version* before = nullptr;  // nullptr: nothing known at that instant
  const Version* after = nullptr;
  uint64_t bytes = 0;    // how many of both versions are at the start of `range`
  uint64_t pokes = 0;    // in between
  bool differs = false;  // false: changed and changed back
  bool unsure = false;   // at one of the instants more than one version is possible
};

struct TextDifference {
  std::vector<SiteDifference> sites;  // by address
  uint64_t pokes = 0;                 // in between, also where nothing is known of the site
  std::array<uint64_t, kMechanisms> pokes_by{};
  std::array<uint64_t, kMechanisms> differ_by{}, back_by{};  // sites
};

// Compares the text of a space at two instants. One pass over the cells and the pokes between the instants.
TextDifference difference(const Capture& capture, const Recognizer& recognizer, Space space,
                          std::span<const Cell> cells, Time from, Time to);

}  // namespace asof
