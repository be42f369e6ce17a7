#include "asof/records.h"

#include "api/record_source.h"
#include "asof/flow.h"
#include "asof/timeline.h"

namespace asof::v0 {

template <class T>
Records<T>::Records(std::unique_ptr<RecordSource<T>> source) : source_(std::move(source)) {}
template <class T>
Records<T>::Records(Records&& other) noexcept = default;
template <class T>
Records<T>& Records<T>::operator=(Records&& other) noexcept = default;
template <class T>
Records<T>::~Records() = default;

template <class T>
std::span<const T> Records<T>::next() {
  return source_ == nullptr ? std::span<const T>() : source_->next();
}

template <class T>
uint64_t Records<T>::reordered() const {
  return source_ == nullptr ? 0 : source_->reordered();
}

template class Records<Instruction>;
template class Records<Block>;
template class Records<Event>;
template class Records<Gap>;
template class Records<FlowItem>;
template class Records<Call>;

}  // namespace asof::v0
