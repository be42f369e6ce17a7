// Communicates with Perfetto's trace processor in a page: sends the bytes of a trace, and gets rows of SQL.
// The protocol is protos/perfetto/trace_processor/trace_processor.proto of Perfetto: a stream of
// TraceProcessorRpc messages.
'use strict';

const kAppend = 1, kFinalize = 2, kQuery = 3;  // TraceProcessorMethod

class Writer {
  constructor() { this.parts = []; }
  varint(n) {
    n = BigInt(n);
    const bytes = [];
    for (; n > 127n; n >>= 7n) bytes.push(Number(n & 127n) | 128);
    bytes.push(Number(n));
    this.parts.push(Uint8Array.from(bytes));
  }
  number(field, n) {
    this.varint(field * 8);
    this.varint(n);
  }
  bytes(field, bytes) {
    this.varint(field * 8 + 2);
    this.varint(bytes.length);
    this.parts.push(bytes);
  }
  finish() {
    const out = new Uint8Array(this.parts.reduce((n, p) => n + p.length, 0));
    let at = 0;
    for (const p of this.parts) {
      out.set(p, at);
      at += p.length;
    }
    return out;
  }
}

class Message {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = 0;
  }
  varint() {
    let value = 0n, shift = 0n, byte;
    do {
      byte = this.bytes[this.at++];
      value |= BigInt(byte & 127) << shift;
      shift += 7n;
    } while (byte > 127);
    return value;
  }
  // [field, value] pairs: numbers as BigInt, everything with a length as bytes.
  *fields() {
    while (this.at < this.bytes.length) {
      const tag = Number(this.varint());
      const field = tag >> 3;
      if ((tag & 7) === 0) yield [field, this.varint()];
      else if ((tag & 7) === 1) yield [field, this.take(8)];
      else if ((tag & 7) === 5) yield [field, this.take(4)];
      else yield [field, this.take(Number(this.varint()))];
    }
  }
  take(n) {
    this.at += n;
    return this.bytes.subarray(this.at - n, this.at);
  }
}

// CellsBatch: the types of all cells, then the values of each type.
function cellsOf(batch) {
  let types = [], integers = [], floats = [], strings = [];
  for (const [field, value] of new Message(batch).fields()) {
    if (field === 1) types = [...value];
    if (field === 2) for (const m = new Message(value); m.at < value.length;) integers.push(BigInt.asIntN(64, m.varint()));
    if (field === 3) {
      const view = new DataView(value.buffer, value.byteOffset, value.length);
      for (let i = 0; i < value.length; i += 8) floats.push(view.getFloat64(i, true));
    }
    if (field === 5) strings = new TextDecoder().decode(value).split('\0');
  }
  let i = 0, f = 0, s = 0;
  return types.map((t) => t === 2 ? integers[i++] : t === 3 ? floats[f++] : t === 4 ? strings[s++] : null);
}

class TraceProcessor {
  constructor(url) {
    this.worker = new Worker(url);
    this.failed = new Promise((_, reject) => { this.worker.onerror = (e) => reject(new Error(e.message)); });
    const channel = new MessageChannel();
    this.port = channel.port1;
    this.port.onmessage = (e) => this.receive(e.data);
    this.worker.postMessage({enginePort: channel.port2}, [channel.port2]);
    this.pending = new Uint8Array(0);
    this.waiting = [];
    this.sent = 0;
  }

  call(method, fill) {
    const rpc = new Writer();
    rpc.number(1, ++this.sent);
    rpc.number(2, method);
    fill(rpc);
    const stream = new Writer();
    stream.bytes(1, rpc.finish());
    return Promise.race([this.failed, new Promise((resolve, reject) => {
      this.waiting.push({resolve, reject, rows: [], names: []});
      this.port.postMessage(stream.finish());
    })]);
  }

  receive(data) {
    const joined = new Uint8Array(this.pending.length + data.length);
    joined.set(this.pending);
    joined.set(data, this.pending.length);
    const stream = new Message(joined);
    for (;;) {
      const start = stream.at;
      if (start === joined.length) break;
      stream.varint();
      const length = Number(stream.varint());
      if (stream.at + length > joined.length) {
        stream.at = start;
        break;
      }
      this.answer(stream.take(length));
    }
    this.pending = joined.slice(stream.at);
  }

  answer(rpc) {
    const call = this.waiting[0];
    let done = true;
    for (const [field, value] of new Message(rpc).fields()) {
      if (field === 5) call.error = new TextDecoder().decode(value);
      if (field === 203) done = this.result(call, value);
      if (field === 201) {
        for (const [f, v] of new Message(value).fields()) if (f === 2) call.error = new TextDecoder().decode(v);
      }
    }
    if (!done) return;
    this.waiting.shift();
    if (call.error) call.reject(new Error(call.error));
    else call.resolve(call.rows);
  }

  result(call, bytes) {
    let last = false;
    for (const [field, value] of new Message(bytes).fields()) {
      if (field === 1) call.names.push(new TextDecoder().decode(value));
      if (field === 2) call.error = new TextDecoder().decode(value);
      if (field !== 3) continue;
      for (const [f, v] of new Message(value).fields()) if (f === 6) last = v === 1n;
      const cells = cellsOf(value);
      for (let i = 0; i < cells.length; i += call.names.length) {
        call.rows.push(Object.fromEntries(call.names.map((n, k) => [n, cells[i + k]])));
      }
    }
    return last || Boolean(call.error);
  }

  async load(bytes) {
    const piece = 16 << 20;
    for (let at = 0; at < bytes.length; at += piece) {
      await this.call(kAppend, (rpc) => rpc.bytes(101, bytes.subarray(at, at + piece)));
    }
    await this.call(kFinalize, () => {});
  }

  // Rows as objects; whole numbers as BigInt.
  query(sql) {
    return this.call(kQuery, (rpc) => {
      const args = new Writer();
      args.bytes(1, new TextEncoder().encode(sql));
      rpc.bytes(103, args.finish());
    });
  }
}
