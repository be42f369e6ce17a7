// LiveInput: a pipe, or a file that grows, that is read as fast as it is written, whatever is done with it meanwhile:
// perf loses records when nobody reads a pipe. What was read lies in an unlinked temporary file.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "decoder/io/descriptor.h"
#include "decoder/live/followed_file.h"
#include "decoder/live/record_framer.h"
#include "decoder/perf/perf_data_input.h"
#include "textstore/result.h"

namespace asof {

class LiveInput {
 public:
  struct State {
    bool is_pipe = false;    // of perf's (RecordFramer)
    bool ended = false;      // there is no more
    uint64_t received = 0;   // bytes
    uint64_t trace = 0;      // of them
    uint64_t rounds = 0;     // that are complete
    uint64_t round_end = 0;  // behind the last of them
    std::optional<Error> failure{};
  };

  // Reads `fd`, which stays the caller's, in a thread of its own.
  static Result<std::unique_ptr<LiveInput>> start(int fd);
  // The same of a file.
  static Result<std::unique_ptr<LiveInput>> start(FollowedFile file);
  ~LiveInput();
  LiveInput(const LiveInput&) = delete;
  LiveInput& operator=(const LiveInput&) = delete;

  // Waits until more than `rounds` are complete, the input has ended, or `most` is over.
  State wait(uint64_t rounds, std::chrono::milliseconds most);
  // The temporary file. Bytes below State::received do not change any more.
  int fd() const { return spool_.fd(); }
  // Bytes of it that are not read again: gives the room that they take on the disk back, where the file system can.
  void discard(uint64_t begin, uint64_t end) const;

 private:
  LiveInput(int from, std::optional<FollowedFile> file, Spool spool, Descriptor stop, Descriptor wanted)
      : from_(from),
        file_(std::move(file)),
        spool_(std::move(spool)),
        stop_(std::move(stop)),
        wanted_(std::move(wanted)) {}
  static Result<std::unique_ptr<LiveInput>> make(int from, std::optional<FollowedFile> file);
  void read_all();
  // False: the end, or a failure, which is noted.
  bool read_pipe(std::span<uint8_t> buffer);
  bool read_file(std::span<uint8_t> buffer);
  bool take(std::span<const uint8_t> bytes);
  bool fails(Error error);

  const int from_;
  std::optional<FollowedFile> file_;
  Spool spool_;
  Descriptor stop_, wanted_;  // ends of a pipe; once the second is closed, nobody wants any more
  RecordFramer framer_;
  std::mutex mutex_;  // of state_
  std::condition_variable changed_;
  State state_;
  std::thread thread_;
};

}  // namespace asof
