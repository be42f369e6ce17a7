// RecordFramer: where rounds of records end in a pipe of perf's that is still written. It looks at the sizes of
// records, and at nothing else.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace asof {

class RecordFramer {
 public:
  // The next bytes of the pipe, cut anywhere.
  void feed(std::span<const uint8_t> bytes);

  // By its first bytes; true while there are none.
  bool may_be_perf_data() const { return may_be_perf_data_; }
  // A pipe's header was read. False also where the input is a file: what a file's header names is at its end.
  bool is_pipe() const { return is_pipe_; }
  uint64_t rounds() const { return rounds_; }        // FINISHED_ROUND records
  uint64_t round_end() const { return round_end_; }  // behind the last one
  uint64_t trace_bytes() const { return trace_; }    // of AUXTRACE payloads so far

 private:
  // kOther: no pipe, or a record has an impossible size, so that nothing is known of what follows.
  enum class State : uint8_t { kHeader, kRecords, kOther };
  bool collect(std::span<const uint8_t>& bytes, size_t size);
  void skip(std::span<const uint8_t>& bytes);
  void take_header();
  // False: more of its head is needed.
  bool take_record();
  uint64_t number(size_t at, size_t size) const;

  State state_ = State::kHeader;
  bool may_be_perf_data_ = true, is_pipe_ = false, swapped_ = false;
  std::array<uint8_t, 16> head_{};  // of the record, or of the pipe
  size_t have_ = 0;                 // of head_
  uint64_t left_ = 0;               // of the record, behind what was read of its head
  uint64_t payload_left_ = 0;       // how much of left_ is trace
  uint64_t pos_ = 0, rounds_ = 0, round_end_ = 0, trace_ = 0;
};

}  // namespace asof
