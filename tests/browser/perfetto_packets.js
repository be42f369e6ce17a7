// Reads the packets of a Perfetto trace, as far as its engine does not tell: protos/perfetto/trace/trace_packet.proto.
'use strict';

// Fields of a message: [number, value]; a value is a number, or bytes.
function fields(bytes) {
  const out = [];
  let at = 0;
  const varint = () => {
    let n = 0n, shift = 0n, byte;
    do {
      byte = bytes[at++];
      n |= BigInt(byte & 127) << shift;
      shift += 7n;
    } while (byte > 127);
    return n;
  };
  while (at < bytes.length) {
    const key = Number(varint()), kind = key & 7;
    if (kind === 0) out.push([key >> 3, varint()]);
    else {
      const length = kind === 1 ? 8 : kind === 5 ? 4 : Number(varint());
      out.push([key >> 3, bytes.subarray(at, at + length)]);
      at += length;
    }
  }
  return out;
}
const of = (message, number) => message.filter(([n]) => n === number).map(([, value]) => value);

// [name, unit] of each counter's track, by name.
function counterUnits(trace) {
  const kPacket = 1, kTrackDescriptor = 60, kName = 2, kCounter = 8, kUnitName = 6;
  const units = [];
  for (const packet of of(fields(trace), kPacket)) {
    for (const descriptor of of(fields(packet), kTrackDescriptor)) {
      const track = fields(descriptor);
      for (const counter of of(track, kCounter)) {
        units.push([Buffer.from(of(track, kName)[0]).toString(), Buffer.from(of(fields(counter), kUnitName)[0] || []).toString()]);
      }
    }
  }
  return units.sort((a, b) => (a[0] < b[0] ? -1 : 1));
}

module.exports = {counterUnits};
