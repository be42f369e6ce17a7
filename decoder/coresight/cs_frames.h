// CoreSight formatter frames: the bytes of several trace sources interleaved, 16 bytes a frame (Arm IHI 0029,
// "Trace Formatter"). The index pass notes where the bytes of each source begin; they are taken out of the
// frames only when a Stream requests them. The index becomes coarser when it gets long, so memory does not
// grow with the trace.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arch/stream.h"
#include "decoder/io/sideband_notices.h"

namespace asof {

enum class FrameAlignment : uint8_t {
  kMemory,  // frames at every 16th byte of a section: ETB, ETF, ETR. Four FSYNCs in one frame reset the
            // source
  kTpiu,    // frames between FSYNC and HSYNC packets, as a trace port sends them
};

// A stretch of frames that one formatter wrote without a break: one AUX record, or one file.
struct FrameSection {
  std::span<const uint8_t> bytes;
  uint64_t file_offset = 0;    // of bytes[0]
  bool discontinuity = false;  // trace is missing before it
  // Of a file whose blocks carry something else at their ends: after each `payload` bytes of these, `trailer`
  // bytes of the file were left out. 0: none.
  uint64_t payload = 0, trailer = 0;
  bool mapped = false;  // `bytes` lie in a read-only mapping of a file

  // Where byte `at` of the section is in the file.
  uint64_t place(uint64_t at) const { return file_offset + at + (payload == 0 ? 0 : at / payload * trailer); }
};

// Where the bytes of a source do not continue those before, or may not.
struct FrameBreak {
  uint64_t at = 0;     // byte of the source
  size_t section = 0;  // index of the section it lies in
  bool discontinuity = false;
  uint64_t file_offset = 0;  // of this byte
};

class Deframer;
class CsFrameIndexer;
struct CsFrameState;

class CsFrames : public std::enable_shared_from_this<CsFrames> {
 public:
  struct Source {
    uint8_t id = 0;
    uint64_t size = 0;               // bytes of it
    std::vector<FrameBreak> breaks;  // ascending; the first is at 0
    size_t first_checkpoint = 0;     // counts[i] is how many of its bytes come before checkpoint
    std::vector<uint64_t> counts;    // first_checkpoint + i
  };
  // What the index pass could not use. Offsets are of the file, of the first such bytes.
  struct Losses {
    uint64_t unassigned = 0, unassigned_at = 0;  // data before any ID, or of the reserved ones
    uint64_t unsynced = 0, unsynced_at = 0;      // no frame: bytes without FSYNC, a broken frame
    uint64_t partial = 0, partial_at = 0;        // a frame that the end of its section cuts
  };

  // Positions in the index: a read passes over as many frames as lie between two of them.
  static constexpr size_t kMostCheckpoints = 1U << 16;
  struct Checkpoint {
    size_t section = 0;
    uint64_t offset = 0;  // in the section
    uint8_t id = 0;
    auto operator<=>(const Checkpoint&) const = default;
  };
  // The bytes that `sections` point to must outlive the result.
  static std::shared_ptr<const CsFrames> index(std::vector<FrameSection> sections, FrameAlignment alignment,
                                               size_t most_checkpoints = kMostCheckpoints);
  // Of what another process's index pass found; `sources` by ID, without breaks. nullptr: that is no index of such frames,
  // or reads would pass over more frames than is_dense() allows. Frames are compared with it when they are read; where
  // they differ, reading throws a ThrownError, which names `where`.
  static std::shared_ptr<const CsFrames> restore(std::vector<FrameSection> sections, FrameAlignment alignment,
                                                 std::vector<Checkpoint> checkpoints,
                                                 std::vector<Source> sources, std::string where);
  const std::vector<Checkpoint>& checkpoints() const { return checkpoints_; }
  // Whether positions are as close as the index pass leaves them where all bytes are frames.
  bool is_dense() const;

  const std::vector<FrameSection>& sections() const { return sections_; }
  FrameAlignment alignment() const { return alignment_; }
  // The frames, and the ID in them, that these bytes are taken from; nullptr: they are not from frames.
  static std::pair<std::shared_ptr<const CsFrames>, uint8_t> frames_of(const TraceBytes& bytes);
  std::span<const Source> sources() const { return sources_; }  // by ID
  const Losses& losses() const { return losses_; }
  // The source's bytes, for StreamPiece::source. nullptr: no such source.
  std::shared_ptr<const TraceBytes> bytes_of(uint8_t id) const;
  // Pieces of a Stream for it, cut at its breaks.
  std::vector<StreamPiece> pieces_of(uint8_t id) const;
  // Of a recording that grows (cs_frame_memory.h). The checkpoint from which byte `at` of a source is read; the first one
  // behind all bytes before it.
  size_t checkpoint_before(uint8_t id, uint64_t at) const;
  size_t checkpoint_behind(uint8_t id, uint64_t at) const;
  // The frames between two checkpoints are not read again: their bytes in the file, as far as they were not given up
  // before. In what is opened later, bytes of sources are zeros there.
  struct FileBytes {
    uint64_t begin = 0, end = 0;
    bool goes_on = false;  // bytes right before these were given up
    bool ends = false;     // with a section, behind which something else is
  };
  std::vector<FileBytes> give_up(size_t from, size_t to) const;
  // The first byte of this source that lies in `section` or later.
  static uint64_t begin_of_section(const Source& source, size_t section);

 private:
  friend class CsSourceBytes;
  friend class CsFrameMemory;
  CsFrames() = default;
  void index_section(CsFrameIndexer& indexer, size_t section);
  void finish(const CsFrameIndexer& indexer);
  void add_checkpoint(CsFrameIndexer& indexer, const Checkpoint& checkpoint);
  const Source* find(uint8_t id) const;
  void index_frame(CsFrameIndexer& indexer, const Deframer& frames, const FrameSection& section);
  void lose_bytes(bool partial, const Deframer& frames, const FrameSection& section);

  std::vector<FrameSection> sections_;
  FrameAlignment alignment_ = FrameAlignment::kMemory;
  std::vector<Checkpoint> checkpoints_;
  size_t most_checkpoints_ = kMostCheckpoints;
  size_t window_ = 1;  // checkpoints; what a source has read past is released in units of windows
  std::vector<Source> sources_;
  Losses losses_;
  std::shared_ptr<CsFrameState> memory_;
  std::optional<size_t> given_up_;  // as in it
  bool restored_ = false;
  std::string where_;
};

// Notices (E-DATA-110) of what the index pass could not use; `where` names the file or ring.
void report_unused_frames(const CsFrames& frames, const std::string& where, NoticeBook& notices);
// A notice (E-SIDE-508) of the trace IDs that are not `known`.
void report_unknown_ids(const CsFrames& frames, const std::string& where, const std::set<uint8_t>& known,
                        NoticeBook& notices);

}  // namespace asof
