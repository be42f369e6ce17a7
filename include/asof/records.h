// Records<T>: a sequence that is made while it is read, for range-for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "asof/export.h"

namespace asof::v0 {

template <class T>
class RecordSource;

// Single pass: begin() may be called once. Decoding runs in threads of its own, ahead of the reader by a
// bounded amount; they start when the first record is requested and have ended when the destructor returns,
// also in the middle of the sequence. The destructor then waits for the segments (from one PSB or A-Sync to
// the next) that are being decoded.
//
// The sequence depends on the capture and the filter alone, not on the number of jobs or on timing.
//
// One thread at a time may use one Records; several Records of one capture may be read in parallel. A Records
// keeps the capture's data alive. A record is valid until the iterator moves on; what its pointers, spans and
// string_views refer to lives as long as the Records.
template <class T>
class ASOF_EXPORT Records {
 public:
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using reference = const T&;

    Iterator() = default;
    const T& operator*() const { return batch_[at_]; }
    const T* operator->() const { return &batch_[at_]; }
    Iterator& operator++() {
      if (++at_ == batch_.size()) {
        batch_ = records_->next();
        at_ = 0;
      }
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return at_ == batch_.size(); }

   private:
    friend class Records;
    explicit Iterator(Records* records) : records_(records), batch_(records->next()) {}
    Records* records_ = nullptr;
    std::span<const T> batch_;
    std::size_t at_ = 0;
  };

  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() const { return {}; }

  // The same by batches of a few thousand at most; empty at the end. A batch is valid until the next call.
  std::span<const T> next();

  // Order::kTime: how often the order over CPUs was given up, because more would have had to wait than memory
  // allows (segments that are very long). Not the order within a CPU.
  std::uint64_t reordered() const;

  explicit Records(std::unique_ptr<RecordSource<T>> source);
  Records(Records&& other) noexcept;
  Records& operator=(Records&& other) noexcept;
  ~Records();

 private:
  std::unique_ptr<RecordSource<T>> source_;
};

}  // namespace asof::v0
