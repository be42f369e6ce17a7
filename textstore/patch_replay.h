// PatchReplay: plays the pokes of one lifetime of one site and writes down what the bytes were when.
//
//   base      what the layer says, with pokes before or after the lifetime redone or undone on it
//   initial   for bytes that a poke of this lifetime covers: the first one's old bytes; else the base
//   pieces    one per poke, as long as each poke's old bytes are what the one before left
//   break     they are not: from the poke before to this one both are candidates, in every combination with
//             other bytes of the site; LOST records narrow when the missing change can have been made
//   loss      records were lost and nothing shows the site: everything it ever was is a candidate as well
#pragma once
#include <string>

#include "textstore/site_versions.h"

namespace asof {

class PatchReplay {
 public:
  explicit PatchReplay(SiteContext& context) : context_(context) {}

  void begin_site(AddrRange site, std::span<const uint32_t> members);
  struct State {
    std::vector<uint8_t> bytes, known;
  };
  struct Surroundings {
    Time before = kTimeMin;          // the last instant an earlier backed lifetime can still have been there
    std::span<const Lifetime> next;  // the backed lifetimes that begin first after this one
    const State* carried = nullptr;  // how an earlier lifetime of the same layers ended, or null
  };
  // Returns the lifetime's last instant: before its end, when a poke shows that something else is there
  // already.
  Time run(const Lifetime& lifetime, const Surroundings& around, std::vector<Version>& out);
  // How the last run() of a backed lifetime ended.
  State final_state() const { return {value_, known_}; }
  // Did all pokes of the last run() find what this lifetime had, and what the layer shows besides?
  bool consistent() const { return consistent_; }

 private:
  struct Piece {
    Time from, until;  // empty when until < from
    const uint8_t* bytes;
    OriginRef origin;
    bool main;           // the chain itself, not a candidate beside it
    bool doubt = false;  // a candidate that counts although no layer covers it
  };
  // An instant at which all bytes of the site were seen: as they were just before it, just after it, or both.
  struct Sighting {
    Time time = kTimeMin;
    bool before = false, after = false;
    Time lost_after = kTimeMax;  // losses count from here on, when that is earlier
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  const PokeRecord& poke(size_t member) const { return context_.pokes[members_[member]]; }
  size_t first_at(Time t) const;     // first member at or after t
  size_t first_after(Time t) const;  // first member after t
  template <class F>
  void for_each_byte(const PokeRecord& p, std::span<const uint8_t> bytes, F&& f) const;

  void load_base(const Lifetime& lifetime, const State* carried);
  void roll_base(const Lifetime& lifetime, const Surroundings& around);
  void roll(const PokeRecord& p, std::span<const uint8_t> from, std::span<const uint8_t> to);
  void load_initial(const Lifetime& lifetime);
  Time find_end(const Lifetime& lifetime);
  void play(const Lifetime& lifetime, Time until);
  bool after_announced_end(const Lifetime& lifetime, const PokeRecord& p) const;
  bool fits(const PokeRecord& p) const;
  void apply(size_t member);
  void emit(Time from, Time until, size_t next_member);
  const uint8_t* content(size_t next_member);
  const uint8_t* copy_of(std::span<const uint8_t> bytes);

  bool find_mismatch(const PokeRecord& p);
  void handle_break(size_t member);
  void add_candidates(Time first, Time last_old, Time last, size_t member, uint32_t group);
  void add_unknown(Time from, Time until);
  bool may_be_loaded_anew(const PokeRecord& p) const;
  void report_break(size_t member, uint32_t group) const;

  static bool observed_within(const Lifetime& lifetime);
  bool decided_bytes_equal(const uint8_t* bytes) const;
  void watch_observation(const Lifetime& lifetime, Time until, bool initial);
  void judge_observation(const Lifetime& lifetime, std::span<const Lifetime> next);
  bool ends_as(const Lifetime& next) const;
  bool shows_transient() const;
  void add_observed_candidate(const Lifetime& lifetime);
  void report_mismatch(const Lifetime& lifetime);
  void contradicted(size_t member);

  std::vector<Piece> distinct_states(bool& few) const;
  bool has_two_states_only(std::span<const Piece> states) const;
  bool copy_shows(const Lifetime& lifetime) const;
  void find_sightings(const Lifetime& lifetime, bool carried, bool start_agrees);
  void add_lost_states(const Lifetime& lifetime, Time until, bool carried, bool start_agrees);

  SiteContext& context_;
  AddrRange site_;
  std::span<const uint32_t> members_;
  size_t begin_ = 0, end_ = 0;  // members in this lifetime
  bool backed_ = false;         // of it
  OriginRef lifetime_origin_ = kNoOrigin;
  const uint8_t* whole_ = nullptr;  // the layer's own bytes where base_ still equals them

  std::vector<uint8_t> base_, base_known_;
  std::vector<uint8_t> value_, known_;
  size_t unknown_ = 0;              // bytes with known_ == 0
  std::vector<uint8_t> decided_;    // 1: the initial byte is a poke's old byte
  std::vector<uint32_t> last_;      // member that wrote the byte last, kNone: none yet
  std::vector<uint32_t> mismatch_;  // bytes of find_mismatch()
  std::vector<uint32_t> groups_;
  std::vector<uint8_t> overlay_;

  std::vector<Piece> pieces_;
  std::vector<Sighting> sightings_;
  size_t unknown_piece_ = SIZE_MAX;
  enum class Seen : uint8_t { kNotYet, kDiffers, kAgrees } seen_ = Seen::kNotYet;
  // The piece at the observation, when it differs, as it was before breaks cut it.
  size_t observed_piece_ = 0;
  Time observed_until_ = kTimeMax;
  bool observed_initial_ = false;
  bool consistent_ = true;
  bool copy_counts_ = false;  // the copy differs and is a candidate
};

template <class F>
void PatchReplay::for_each_byte(const PokeRecord& p, std::span<const uint8_t> bytes, F&& f) const {
  const AddrRange r = site_.intersect(range_of(p.addr, bytes.size()));
  for (Addr a = r.begin; a < r.end; ++a) f(static_cast<uint32_t>(a - site_.begin), bytes[a - p.addr]);
}

// "0f 1f 44 00 00", shortened after 16 bytes.
std::string hex_bytes(std::span<const uint8_t> bytes);

}  // namespace asof
