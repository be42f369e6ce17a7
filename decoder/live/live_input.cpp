#include "decoder/live/live_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace asof {
namespace {

constexpr size_t kBuffer = 1U << 20;
constexpr const char* kName = "standard input";

}  // namespace

Result<std::unique_ptr<LiveInput>> LiveInput::start(int fd) { return make(fd, std::nullopt); }

Result<std::unique_ptr<LiveInput>> LiveInput::start(FollowedFile file) { return make(-1, std::move(file)); }

Result<std::unique_ptr<LiveInput>> LiveInput::make(int from, std::optional<FollowedFile> file) {
  auto spool = Spool::create();
  if (!spool) return std::unexpected(spool.error());
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return fail(Code::kNoResources, kName, Error::kNoOffset, std::strerror(errno));
  std::unique_ptr<LiveInput> input(
      new LiveInput(from, std::move(file), *std::move(spool), Descriptor(ends[0]), Descriptor(ends[1])));
  input->thread_ = std::thread([raw = input.get()] { raw->read_all(); });
  return input;
}

LiveInput::~LiveInput() {
  wanted_ = Descriptor();
  if (thread_.joinable()) thread_.join();
}

LiveInput::State LiveInput::wait(uint64_t rounds, std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return state_.ended || state_.rounds > rounds; });
  return state_;
}

void LiveInput::discard(uint64_t begin, uint64_t end) const {
  if (begin < end)
    ::fallocate(spool_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin));
}

void LiveInput::read_all() {
  std::vector<uint8_t> buffer(kBuffer);
  while (file_ ? read_file(buffer) : read_pipe(buffer)) {
  }
  const std::lock_guard lock(mutex_);
  state_.ended = true;
  changed_.notify_all();
}

bool LiveInput::fails(Error error) {
  const std::lock_guard lock(mutex_);
  state_.failure = std::move(error);
  return false;
}

bool LiveInput::read_pipe(std::span<uint8_t> buffer) {
  std::array<pollfd, 2> wanted{pollfd{from_, POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
  if (::poll(wanted.data(), wanted.size(), -1) < 0) return errno == EINTR;
  if (wanted[1].revents != 0) return false;
  const ssize_t got = ::read(from_, buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got < 0)
    return fails({Code::kCannotReadInput,
                  kName,
                  Error::kNoOffset,
                  fmt::format("cannot read: {}", std::strerror(errno)),
                  {}});
  return got != 0 && take(buffer.first(static_cast<size_t>(got)));
}

bool LiveInput::read_file(std::span<uint8_t> buffer) {
  const auto got = file_->read(buffer);
  if (!got) return fails(got.error());
  if (*got != 0) return take(buffer.first(*got));
  if (file_->ended()) return false;
  pollfd wanted{stop_.get(), POLLIN, 0};
  constexpr int kPauseMs = 50;
  return ::poll(&wanted, 1, kPauseMs) <= 0;
}

bool LiveInput::take(std::span<const uint8_t> bytes) {
  auto done = spool_.append(bytes);
  if (done) done = spool_.flush();
  if (!done) return fails(done.error());
  framer_.feed(bytes);
  const std::lock_guard lock(mutex_);
  state_.received += bytes.size();
  state_.is_pipe = framer_.is_pipe();
  state_.trace = framer_.trace_bytes();
  // A record that is not all there yet may have been announced.
  if (framer_.round_end() <= state_.received) {
    state_.rounds = framer_.rounds();
    state_.round_end = framer_.round_end();
  }
  changed_.notify_all();
  // Whoever opens it says what is wrong with it; it may have no end.
  return framer_.may_be_perf_data();
}

}  // namespace asof
