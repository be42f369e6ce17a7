// CallStack: who called whom in one thread, by its branches alone. Calls push, returns pop; in addition:
//
//  * Flow begins in the middle. A return below the lowest frame shows the caller, which existed all the time:
//    it is added at the bottom, with the beginning of the stretch as its own. Depth never grows by what was
//    missed, so there is no staircase.
//  * Flow is lost. The frames from before are parked. A return (or the resumption itself) that leads into one
//    of their functions restores it and those below it; those above it ended in the gap. What is not restored
//    by the next loss ended in the first. A restored frame may be another call of its function: if it returns
//    elsewhere, those below it were not on the stack, and the caller is determined anew.
//  * Returns that match no call: thunks and trampolines that return into the start of a function (a jump),
//    longjmp (all up to the frame where it lands), and the rest (the top is replaced).
//  * Interrupts and system calls are boundaries: near returns do not cross them, the far return pops them.
//  * Breakpoint handlers return elsewhere than to the interrupted instruction: into a slot, into a function
//    that the instruction would have called (arch/x86/kernel/alternative.c poke_int3_handler(),
//    arch/arm64/kernel/probes/).
#pragma once
#include <cstdint>
#include <vector>

#include "arch/block.h"
#include "decoder/calls/timeline.h"
#include "decoder/calls/timeline_functions.h"

namespace asof {

// One track's view of a frame.
struct Activity {
  uint64_t id = 0;  // of the slice; 0: none on that track
  Time begin = 0;
  uint64_t count = 0;  // instructions on the track until it began
  uint64_t below = 0;  // instructions of slices it called
  uint32_t flags = 0;  // on this track only
};

struct Frame {
  enum class Kind : uint8_t {
    kCall,
    kAsync,    // boundary: interrupt or exception
    kSyscall,  // boundary: far call
    kSlot,     // out-of-line code; gone when the flow is back in the function below
    kOutside,  // not traced
  };
  Kind kind = Kind::kCall;
  Confidence confidence = Confidence::kCertain;
  uint32_t function = 0;
  uint32_t flags = 0;
  uint32_t version = 1;
  Addr back = 0;  // 0: unknown
  Addr entry = 0;
  Addr site = 0;
  OriginRef origin = kNoOrigin;
  int32_t cpu = -1;
  bool guessed = false;   // after a loss the flow was in its function; those below need not be its callers
  Activity thread, part;  // on the thread's track; on the CPU's

  bool boundary() const { return kind == Kind::kAsync || kind == Kind::kSyscall; }
};

// An address where the flow went.
struct Landing {
  uint32_t function = 0;
  Addr at = 0;
  OriginRef origin = kNoOrigin;
  bool start = false;  // of its function (just after an ENDBR64 or BTI counts, too)
};

class CallStack;

// Is notified of every frame that is added or removed; gives it its slices.
class FrameHost {
 public:
  virtual ~FrameHost() = default;
  virtual void opened(Frame& frame) = 0;
  // Was below `above` (nullptr: nothing) since the stretch began.
  virtual void discovered(Frame& frame, const Frame* above) = 0;
  // `below`: the frame below it; nullptr: none known. `lost`: it ended when the flow was lost.
  virtual void closed(Frame& frame, Frame* below, bool lost) = 0;
  // The lowest `count` frames of the stack are restored; parentless slices of the stretch belong to the last
  // of them.
  virtual void adopted(CallStack& stack, size_t count) = 0;
  // What is on the stack may not exist any more; the flow is known from here on.
  virtual void refuted() = 0;
};

class CallStack {
 public:
  // Deeper than any stack of real code: recursion without end, or made-up trace. All frames are dropped.
  static constexpr size_t kMaxFrames = 4096;

  CallStack(const FunctionTable& functions, FrameHost& host) : functions_(functions), host_(host) {}

  void call(const Landing& to, Addr site, Addr back, Frame::Kind kind, uint32_t flags);
  void ret(const Landing& to);
  void jump(const Landing& to);
  // The interrupted instruction is `size` bytes long if a handler emulated it as a call.
  void far_return(const Landing& to, uint64_t size);
  // The flow is elsewhere, untraced, until resume().
  void outside(Addr back);
  // The function returned to one that is not traced.
  void leave_function();
  // The flow leaves the kernel for user mode that is not traced.
  void leave_kernel();
  // The flow is at `to` by an unknown path: after a loss (`lost`), or where tracing continued.
  void resume(const Landing& to, bool lost);
  // Everything ends.
  void close_all(bool lost);

  std::vector<Frame>& frames() { return frames_; }
  std::vector<Frame>& parked() { return parked_; }
  Frame* top() { return frames_.empty() ? nullptr : &frames_.back(); }
  // More parentless slices than the host keeps: callers found later are valid from here on only.
  void forget_parked() { close_parked(0); }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  void push(Frame frame, const Landing& to);
  void root(const Landing& to, uint32_t flags);
  void pop(uint32_t flags = 0, bool lost = false);
  void pop_to(size_t size, uint32_t flags);  // all above frames_[size - 1]
  void replace(const Landing& to, uint32_t flags);
  // The flow is back in a caller whose call was not seen.
  void discover(const Landing& to);
  bool adopt(const Landing& to);
  // Back from a guessed frame, in a function that is not on the stack.
  void refute(const Landing& to);
  void lose_track(const Landing& to, bool lost);
  void close_parked(size_t keep);
  size_t find_function(uint32_t function, size_t floor) const;
  size_t floor() const;  // frames below belong to what was interrupted
  void land(const Landing& to, const Frame& left, uint64_t size);

  const FunctionTable& functions_;
  FrameHost& host_;
  std::vector<Frame> frames_;
  std::vector<Frame> parked_;
};

}  // namespace asof
