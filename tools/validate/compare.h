// Comparer: what asof decoded for one CPU against what that CPU executed, as two sequences of instructions.
//
// Both sides come as straight pieces that are cut at different addresses, so they are walked by address: at
// each common boundary the number of instructions must agree too. After a gap the decoder may resume anywhere
// later. The position is found by addresses and by the order of the stretches between gaps: a stretch lies
// where all of it ran, after the one before it, and such that those after it can still be placed. Times only
// choose between positions that are equally good, because the time of a short stretch can be that of a later
// packet. Without a gap any difference is a fault:
//
//   wrong    the decoder has an instruction that was not executed there
//   missing  executed, but not decoded
//
// Missing instructions from the first one whose bytes are nowhere in the capture (TruthRun::kLateText) to the
// end of that gap are counted apart, as `late`: no decoder could have them.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "tools/validate/truth.h"

namespace asof {

// One executed straight piece as decoded.
struct DecodedPiece {
  Addr ip = 0;
  uint32_t bytes = 0;
  uint32_t count = 0;
  const uint8_t* lengths = nullptr;  // of the instructions; valid until finish() returns
  Time time = kTimeMin;              // Step::time
  Confidence confidence = Confidence::kCertain;
  uint32_t gap = 0;  // 1 + index of the gap before it, 0: none
};

struct Difference {
  enum class Kind : uint8_t { kWrong, kMissing, kLate };
  Kind kind = Kind::kWrong;
  Addr decoded_ip = 0;  // what asof has there (0: nothing)
  Addr truth_ip = 0;    // what was executed (0: nothing more)
  Time time = kTimeMin;
  uint64_t count = 0;  // instructions
  std::string gap;     // the gap before it, empty: none was reported
};

struct EventCounts {
  uint64_t right = 0, wrong = 0, missing = 0;
  bool empty() const { return right + wrong + missing == 0; }
};

struct CompareResult {
  uint64_t right = 0, wrong = 0, missing = 0, late = 0;
  std::array<uint64_t, 5> right_by_confidence{}, wrong_by_confidence{};
  std::map<std::string, uint64_t> missing_by_cause;  // code of the gap; "none" without one
  std::vector<Difference> places;                    // the first ones of each kind
  std::vector<EventCounts> by_event;                 // by what Comparer's `classify` says of the time
  // Of a sample of right instructions: those whose time does not hold the time they ran at, and by how much
  // (ns; positive: the trace is late).
  uint64_t timed = 0;
  std::vector<Time> time_errors;
};

class Comparer {
 public:
  static constexpr size_t kMaxPlaces = 5;    // of each kind
  static constexpr Time kTruthSlack = 1000;  // ns: observed times are those of translation blocks
  using TruthSource = std::function<bool(TruthRun&)>;
  using Classify = std::function<size_t(Time)>;

  // `slack`: how far the decoder's times may be off (ns). `classify`: class of an instant, for
  // CompareResult::by_event.
  explicit Comparer(TruthSource truth, Time slack = kTruthSlack, Classify classify = {})
      : source_(std::move(truth)), slack_(slack), classify_(std::move(classify)) {}

  void add(DecodedPiece piece);
  // A gap before the next piece.
  void add_gap(std::string cause, std::string text);
  void add_gap(Code code, std::string text) { add_gap(std::string(code_text(code)), std::move(text)); }
  // No more pieces: what is left of the truth is missing.
  void finish();
  const CompareResult& result() const { return result_; }

 private:
  static constexpr size_t kLookAhead = 4096;  // pieces held to find the match again

  struct GapNote {
    std::string code, text;
  };
  // A position in both sequences: the piece and the run, and how much of each was passed.
  struct Position {
    size_t piece = 0;
    uint32_t piece_bytes = 0, piece_count = 0;
    size_t run = 0;
    uint32_t run_bytes = 0, run_count = 0;  // run_count: decoded instructions in this run so far
    bool midway = false;                    // a part of this run was skipped
  };
  enum class Outcome : uint8_t { kSame, kDifferent, kNoTruth };
  struct Stretch {
    Outcome outcome = Outcome::kDifferent;
    uint32_t count = 0;      // instructions agreed on
    bool across = false;     // different: an instruction lies across the run's end
    bool run_done = false;   // `at` is now before the next run
    bool run_agrees = true;  // the finished run has as many instructions on both sides
  };
  // The match after a difference: so many pieces, and bytes and instructions of the one after them, are
  // wrong.
  struct Resume {
    size_t pieces_skipped = 0;
    size_t run = 0;
    uint32_t run_bytes = 0;
    uint32_t piece_bytes = 0, piece_count = 0;
  };
  // Where a stretch of pieces can lie in the truth.
  struct Fit {
    Position begin, end;
    size_t pieces = 0;  // that agree
    uint32_t more = 0;  // bytes of the next one that agree, too
    bool whole = false;
    bool alone = true;  // if whole: no other position is
  };
  enum class Search : uint8_t { kFound, kNothing, kUndecided };  // kUndecided: more pieces are needed
  // Pieces between two gaps, as far as they are held.
  struct Island {
    size_t begin = 0, end = 0;
    bool ended = false;  // by a gap, or by the end of the trace
    bool placed = false;
    Position earliest{}, earliest_end{}, latest{};
  };

  const DecodedPiece& piece(size_t index) const { return pieces_[index - piece_base_]; }
  size_t piece_end() const { return piece_base_ + pieces_.size(); }
  const TruthRun* run(size_t index);

  void process(bool last);
  Stretch step(Position& at);
  TimeBounds window(size_t index) const;
  bool run_within(size_t index, TimeBounds window);
  // compare_align.cpp
  std::optional<Fit> fit(const Island& island, const Position& from, size_t run_index);
  const std::vector<size_t>& runs_with(const Island& island, size_t until);
  template <class Visit>
  void each_place(const Island& island, size_t from, size_t until, const Visit& visit);
  std::optional<Fit> first_fit(const Island& island, const Position& from, const Position& until);
  std::optional<Fit> last_fit(const Island& island, const Position& from, const Position& until);
  std::optional<Fit> best_fit(const Island& island, const Position& from, const Position& until);
  Position nearest_in_time(const Island& island);
  std::vector<Island> islands_in_hand();
  Position search_end(const std::vector<Island>& islands);
  uint64_t place_in_order(std::vector<Island>& islands, const Position& until, size_t left_out);
  void place_islands(std::vector<Island>& islands, const Position& until);
  Search find_after_gap(Resume& found);
  bool is_late(size_t index);
  bool agrees_for_a_while(Position at);
  bool find_after_difference(Resume& found);
  bool resume_after_gap();
  void resume(const GapNote& cause);
  void skip(const Resume& to, const std::string& cause, const std::string& text);
  void drop_excess();
  void refute_run();
  void settle_pending(bool right);
  void miss(uint64_t count, bool late, const std::string& cause, Time time);
  void count_event(Time time, EventCounts counts);
  void compare_time(size_t piece_index, Time ran);
  void note(Difference difference);

  TruthSource source_;
  Time slack_;
  Classify classify_;
  std::deque<TruthRun> runs_;
  size_t run_base_ = 0;
  bool truth_ended_ = false;
  bool ordered_ = true;  // the times of the runs read so far never go back
  Time last_time_ = kTimeMin;
  bool pieces_ended_ = false;
  size_t wanted_ = 2 * kLookAhead;  // pieces held before they are compared
  std::deque<DecodedPiece> pieces_;
  size_t piece_base_ = 0;
  std::deque<GapNote> gaps_;
  uint32_t open_gap_ = 0;          // before the next piece to be added
  size_t gap_handled_ = SIZE_MAX;  // index of the piece whose gap was resolved last
  struct Places {
    size_t scanned = 0;  // runs before this one were looked at
    std::vector<size_t> runs;
  };
  std::map<size_t, Places> places_;  // by the first piece of an island
  Position at_;
  std::string midway_cause_;  // why a part of the current run was skipped
  bool midway_late_ = false;
  std::array<uint64_t, 5> pending_{};  // instructions of the current run, by confidence
  Time pending_time_ = kTimeMin;       // when it was entered
  uint32_t until_time_check_ = 0;      // runs
  CompareResult result_;
};

}  // namespace asof
