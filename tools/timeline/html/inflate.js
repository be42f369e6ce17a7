'use strict';
// gzip for browsers without DecompressionStream (before 2023): RFC 1951, codes decoded a bit at a time.

class Inflate {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = this.bit = this.bits = 0;
  }
  take(n) {
    while (this.bit < n) {
      if (this.at >= this.bytes.length) throw new Error('the page was cut');
      this.bits |= this.bytes[this.at++] << this.bit;
      this.bit += 8;
    }
    const value = this.bits & ((1 << n) - 1);
    this.bits >>>= n;
    this.bit -= n;
    return value;
  }
  // Codes in order of length: how many there are of each length, and their symbols.
  static codes(lengths) {
    const count = new Uint16Array(16), next = new Uint16Array(16), symbols = new Uint16Array(lengths.length);
    for (const n of lengths) ++count[n];
    count[0] = 0;
    for (let n = 1; n < 15; ++n) next[n + 1] = next[n] + count[n];
    lengths.forEach((n, symbol) => { if (n) symbols[next[n]++] = symbol; });
    return {count, symbols};
  }
  symbol({count, symbols}) {
    let code = 0, first = 0, index = 0;
    for (let n = 1; n < 16; ++n) {
      code |= this.take(1);
      if (code - count[n] < first) return symbols[index + code - first];
      index += count[n];
      first = (first + count[n]) << 1;
      code <<= 1;
    }
    throw new Error('the page is damaged');
  }
  tables() {
    const literals = this.take(5) + 257, distances = this.take(5) + 1, used = this.take(4) + 4;
    const order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    const short = new Array(19).fill(0);
    for (let i = 0; i < used; ++i) short[order[i]] = this.take(3);
    const codes = Inflate.codes(short), lengths = [];
    while (lengths.length < literals + distances) {
      const symbol = this.symbol(codes);
      if (symbol < 16) lengths.push(symbol);
      else {
        const value = symbol === 16 ? lengths[lengths.length - 1] : 0;
        const times = symbol === 16 ? 3 + this.take(2) : symbol === 17 ? 3 + this.take(3) : 11 + this.take(7);
        for (let i = 0; i < times; ++i) lengths.push(value);
      }
    }
    return [Inflate.codes(lengths.slice(0, literals)), Inflate.codes(lengths.slice(literals))];
  }
  static fixed() {
    const lengths = Array.from({length: 288}, (_, i) => i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8);
    return [Inflate.codes(lengths), Inflate.codes(new Array(30).fill(5))];
  }
  block(out, to, [literals, distances]) {
    for (;;) {
      const symbol = this.symbol(literals);
      if (symbol < 256) out[to++] = symbol;
      else if (symbol === 256) return to;
      else {
        // Lengths and distances grow by powers of two: base and extra bits follow from the symbol.
        const n = symbol - 257, extra = n < 8 || n === 28 ? 0 : (n >> 2) - 1;
        const length = n === 28 ? 258 : n < 8 ? n + 3 : ((4 + (n & 3)) << extra) + 3 + this.take(extra);
        const d = this.symbol(distances), more = d < 4 ? 0 : (d >> 1) - 1;
        const back = d < 4 ? d + 1 : ((2 + (d & 1)) << more) + 1 + this.take(more);
        for (let i = 0; i < length; ++i, ++to) out[to] = out[to - back];
      }
    }
  }
  gzip() {
    const size = new DataView(this.bytes.buffer, this.bytes.byteOffset).getUint32(this.bytes.length - 4, true);
    const out = new Uint8Array(size);
    let to = 0, last = 0;
    this.at = 10;  // asof writes no name or comment
    while (!last) {
      last = this.take(1);
      const kind = this.take(2);
      if (kind === 0) {
        this.bits = this.bit = 0;
        const length = this.bytes[this.at] | this.bytes[this.at + 1] << 8;
        out.set(this.bytes.subarray(this.at + 4, this.at + 4 + length), to);
        this.at += 4 + length;
        to += length;
      } else {
        to = this.block(out, to, kind === 1 ? Inflate.fixed() : this.tables());
      }
    }
    if (to !== size) throw new Error('the page is damaged');
    return out;
  }
}
