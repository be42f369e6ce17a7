// NoticeBook: collects Notices without letting a hostile or badly damaged file fill memory with them.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "decoder/io/notice.h"

namespace asof {

class NoticeBook {
 public:
  // Of one code, this many are kept one by one; the rest is counted in the last.
  static constexpr size_t kMostOfOneCode = 64;

  void add(Notice notice) {
    Seen& seen = seen_[notice.code];
    if (++seen.count <= kMostOfOneCode) {
      seen.last = notices_.size();
      notices_.push_back(std::move(notice));
    } else {
      notices_[seen.last].count += notice.count;
    }
  }
  void error(Code code, std::string where, std::string reason, std::string hint = {},
             uint64_t offset = Error::kNoOffset, Time time = kTimeMin) {
    add({Notice::Severity::kError, code, std::move(where), offset, time, std::move(reason), std::move(hint),
         1});
  }
  void info(Code code, std::string where, std::string reason, std::string hint = {}) {
    add({Notice::Severity::kInfo, code, std::move(where), Error::kNoOffset, kTimeMin, std::move(reason),
         std::move(hint), 1});
  }
  std::vector<Notice> take() { return std::move(notices_); }

 private:
  struct Seen {
    size_t count = 0, last = 0;
  };
  std::vector<Notice> notices_;
  std::map<Code, Seen> seen_;
};

}  // namespace asof
