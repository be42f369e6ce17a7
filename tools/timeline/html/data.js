// Reads what the page carries; docs/html-view.md describes the format. Times are converted to nanoseconds (or
// instructions, in captures without a clock) after the beginning of the capture.

let meta;

function bytesOfBase64(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) out[i] = raw.charCodeAt(i);
  return out;
}

// The contents of a block of data: gzip in base64.
async function unpacked(id) {
  const node = document.getElementById(id);
  const packed = bytesOfBase64(node.textContent);
  node.remove();
  if (typeof DecompressionStream === 'undefined') return new Inflate(packed).gzip();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Numbers of seven bits a byte, lowest first.
class Reader {
  constructor(bytes, place) {
    this.bytes = bytes;
    this.at = place[0];
    this.end = place[0] + place[1];
  }
  number() {
    let value = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  }
  signed() {  // 0, -1, 1, -2, ...
    const n = this.number();
    return n % 2 ? -(n + 1) / 2 : n / 2;
  }
}

// Rows of things that do not overlap, in order of time: the indices of each.
function rowsOf(count, depth) {
  const sizes = [];
  for (let i = 0; i < count; ++i) sizes[depth[i]] = (sizes[depth[i]] || 0) + 1;
  const rows = Array.from(sizes, (n) => new Uint32Array(n || 0));
  const fill = rows.map(() => 0);
  for (let i = 0; i < count; ++i) rows[depth[i]][fill[depth[i]]++] = i;
  return rows;
}

function readSlices(bytes, place, count) {
  const r = new Reader(bytes, place);
  const s = {
    count, begin: new Float64Array(count), end: new Float64Array(count), depth: new Uint16Array(count),
    name: new Uint32Array(count), kind: new Uint32Array(count), instructions: new Float64Array(count),
    self: new Float64Array(count), folded: new Map(),
  };
  let at = 0, depth = 0;
  for (let i = 0; i < count; ++i) {
    at += r.number();
    depth += r.signed();
    s.begin[i] = at / meta.unit;
    s.end[i] = (at + r.number()) / meta.unit;
    s.depth[i] = depth;
    s.name[i] = r.number();
    const kind = r.number();
    s.kind[i] = kind >> 1;
    if (kind & 1) s.folded.set(i, r.number());
    s.self[i] = r.number();
    s.instructions[i] = s.self[i] + r.number();
  }
  s.rows = rowsOf(count, s.depth);
  return s;
}

// [begin, length, what] of things in one row.
function readSpans(bytes, place, count) {
  const r = new Reader(bytes, place);
  const s = {count, begin: new Float64Array(count), end: new Float64Array(count), what: new Uint32Array(count)};
  let at = 0;
  for (let i = 0; i < count; ++i) {
    at += r.number();
    s.begin[i] = at / meta.unit;
    s.end[i] = (at + r.number()) / meta.unit;
    s.what[i] = r.number();
  }
  s.rows = [Uint32Array.from({length: count}, (_, i) => i)];
  return s;
}

// Instants at which the trace has a time: what lies between two of them is in order, its time is not known.
function readPoints(bytes, place, count) {
  const r = new Reader(bytes, place);
  const out = new Float64Array(count);
  let at = 0;
  for (let i = 0; i < count; ++i) out[i] = (at += r.number());
  return out;
}

async function readAll() {
  meta = JSON.parse(new TextDecoder().decode(await unpacked('meta')));
  // Calls that began there; the others are parts of one.
  for (const kind of meta.kinds) kind.begins = !/\b(resumed|began-before)\b/.test(kind.flags);
  // What several processes have of one name, kind and file is one function in sums.
  const first = new Map();
  meta.functions.forEach((f, i) => {
    const key = [f.name, f.kind, f.dso].join('\0');
    if (!first.has(key)) first.set(key, i);
    f.sum = first.get(key);
  });
  const bytes = await unpacked('bytes');
  const tracks = meta.tracks.map((t) => ({...t, slices: readSlices(bytes, t.slices, t.count)}));
  const cpus = meta.cpus.map((c) => ({
    ...c,
    runs: readSpans(bytes, c.runs.place, c.runs.count),
    blocks: readSpans(bytes, c.blocks.place, c.blocks.count),
    points: readPoints(bytes, c.points.place, c.points.count),
  }));
  // Calls are counted once: on CPUs where there are any, else on threads.
  const cpuTracks = tracks.filter((t) => t.kind === 'cpu');
  return {tracks, cpus, counted: cpuTracks.length ? cpuTracks : tracks};
}

// First index i of the sorted `order` for which value(order[i]) > limit.
function firstAbove(order, values, limit, from = 0) {
  let low = from, high = order.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[order[middle]] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}
