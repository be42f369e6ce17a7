// Whose code a flow is: switch records have exact times, the flow has those of its last timing packet. Where the kernel
// is traced, another task runs from where stacks are exchanged, and not from the first packet that is later than the
// record. The same rules as those of slices (call_threads.cpp).
#pragma once
#include "arch/arch.h"
#include "decoder/model/capture.h"

namespace asof {

class TaskWalk {
 public:
  // Both must outlive it.
  TaskWalk(const Capture& capture, const Stream& stream);

  // What comes next does not follow from what was before.
  void interrupt() { flow_ = false; }
  // Before the code of each step, in order.
  void step(const Step& s);
  // False: nothing is known but the records.
  bool flows() const { return flow_; }
  // Before each event that lies between steps.
  void event(const Event& e);
  // Of code that ran there now; nullptr: unknown.
  const ContextChange* task(Space space) const;

 private:
  void resume(Time t);
  void advance(Time t);
  void follow(Time delay);
  void exchange();

  const Stream* stream_;
  AddrRange switcher_{};  // the function that exchanges stacks; empty: unknown, or not traced
  size_t at_ = 0;         // of stream_.contexts
  Time now_ = kTimeMin;
  Time timing_ = 0;  // from one timing packet to the next, about
  bool begun_ = false, known_ = true, flow_ = false, in_switcher_ = false, in_kernel_ = false;
  bool left_space_ = false;  // the last block changed the address space
};

}  // namespace asof
