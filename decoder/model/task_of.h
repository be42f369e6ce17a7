// The task of code that ran: the task at an instant, corrected by the address space of the code.
#pragma once
#include "arch/stream.h"

namespace asof {

// The task whose code of this space runs about `t`; `by_time`: the one that the switch records name for `t`.
// `t` is the time of a timing packet, and the record of a switch can lie between it and the code. The idle
// task and kernel threads have no user code: for user code it is the task of its process next to `t`.
// nullptr: unknown.
const ContextChange* task_of(const Stream& stream, Time t, Space space, const ContextChange* by_time);

}  // namespace asof
