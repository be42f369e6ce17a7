// What a block stream has of the text store, beside its origins: pokes, losses, and kernel text that changes, with all that it
// can have been and when. Of text that does not change it has the blocks that ran.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "decoder/blocks/block_format.h"
#include "textstore/text_store.h"

namespace asof::blocks {

// The number that an origin has in the stream.
using NumberOf = std::function<OriginRef(OriginRef)>;

void put_losses(Writer& out, std::span<const LostRecords> losses);
void take_losses(Source& in, std::vector<LostRecords>& out);
// All of a poke but its bytes.
void put_poke_head(Writer& out, const PokeRecord& poke);
PokeRecord take_poke_head(Source& in);
void put_pokes(Writer& out, const TextStore& text);
void put_changing_text(Writer& out, const TextStore& text, const NumberOf& number_of);

// A store as it was written. Its bytes are copied.
class ChangingText {
 public:
  ChangingText();
  ~ChangingText();
  // In the order of the capture record. `in` has failed where bytes are damaged.
  void take_origins(Source& in);
  void take_pokes(Source& in);
  void take_text(Source& in);
  // Without take_text(), which streams of earlier versions do not have, of what the pokes alone say.
  TextStore finish() &&;

 private:
  struct Taken;
  std::unique_ptr<Taken> taken_;
};

}  // namespace asof::blocks
