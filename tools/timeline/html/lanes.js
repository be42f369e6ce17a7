// What is shown where: lanes below each other, time to the right. A lane is as high as what is in view needs.

const kRow = 16, kLow = 4;  // rows of calls, and those of a lane that was made low
const kTop = 24;            // the axis
const kFewRows = 8;         // of lifetimes, until more are asked for
const kFont = '11px system-ui, "DejaVu Sans", sans-serif';
const kMono = '11px ui-monospace, "DejaVu Sans Mono", monospace';
const kLetter = 6.1;  // about as wide as a letter of kFont
let kLabels = 150;    // width of the left column

class Lanes {
  constructor(data) {
    this.data = data;
    this.canvas = document.getElementById('lanes');
    this.overview = document.getElementById('overview');
    this.thin = new ThinRow();
    this.panel = new Pages(document.getElementById('panel'), this);
    this.begin = this.wantBegin = 0;
    this.end = this.wantEnd = meta.length;
    this.scroll = this.bottom = 0;
    this.width = 1;
    this.closed = new Set();
    this.low = new Set();     // ids of tracks whose rows are low
    this.selected = null;
    this.range = null;        // of time, for sums
    this.wanted = null;       // functions that the search found
    this.places = [];         // of what was drawn: for clicks on marks
    this.held = null;         // y of the pointer: what is there stays there
    this.still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.countCalls();
    this.paint();
    this.makeLanes();
  }

  countCalls() {
    for (const f of meta.functions) f.calls = 0;
    for (const t of this.data.counted) for (const name of t.slices.name) ++meta.functions[name].calls;
  }

  // Takes the colours of the theme.
  paint() {
    readTheme();
    this.colors = colorsOf(meta.functions);
    this.pixels = Uint32Array.from(this.colors, pixel);
    const color = new Map(meta.functions.map((f, i) => [f.name, this.colors[i]]));
    for (const b of meta.blocks) {
      b.color = b.changed ? (theme.dark ? '#8c3a36' : '#fda29b') : color.get(b.symbol.split('+')[0]) || (theme.dark ? '#3a4152' : '#d5d9eb');
    }
    this.whole = null;
  }

  // ---- lanes ----

  makeLanes() {
    const lanes = [];
    const group = (key, name, children) => {
      if (children.length === 0) return;
      lanes.push({kind: 'group', key, name, height: 22});
      if (!this.closed.has(key)) lanes.push(...children);
    };
    const text = [];
    if (meta.pokes.length) text.push({kind: 'pokes', name: `changes (${grouped(meta.pokes.length)})`, height: 24});
    for (const kind of [...new Set(meta.lives.map((l) => l.kind))]) text.push(this.lifeLane(kind));
    group('text', 'Text', text);
    for (const cpu of this.data.cpus) group('cpu' + cpu.id, cpu.name, this.cpuLanes(cpu));
    for (const track of this.data.tracks.filter((t) => t.kind === 'thread')) {
      group('thread' + track.id, track.name, [this.callLane(track)]);
    }
    this.lanes = lanes;
    this.layOut(true);
    if (this.outline) this.outline.fill();
  }

  cpuLanes(cpu) {
    const lanes = [];
    if (cpu.runs.count) lanes.push({kind: 'runs', cpu, name: 'thread', height: kRow + 4});
    lanes.push({kind: 'health', cpu, name: 'health', height: 14});
    const track = this.data.tracks.find((t) => t.kind === 'cpu' && t.cpu === cpu.cpu);
    if (track) lanes.push(this.callLane(track));
    if (track || cpu.blocks.count) lanes.push({kind: 'blocks', cpu, name: 'instructions', height: kRow + 6});
    return lanes;
  }
  callLane(track) {
    return {kind: 'calls', track, name: 'calls', rows: 1, row: this.low.has(track.id) ? kLow : kRow, height: kRow + 6};
  }
  // Lifetimes overlap: each goes into a row that is free then.
  lifeLane(kind) {
    this.lifeLanes = this.lifeLanes || new Map();
    if (this.lifeLanes.has(kind)) return this.lifeLanes.get(kind);
    const lives = meta.lives.filter((l) => l.kind === kind).sort((a, b) => (a.begin ?? -1) - (b.begin ?? -1));
    const ending = lives.filter((l) => l.end !== null).sort((a, b) => a.end - b.end);
    const free = [];
    let next = 0, rows = 0;
    for (const l of lives) {
      while (next < ending.length && ending[next].row !== undefined && ending[next].end <= (l.begin ?? -1)) free.push(ending[next++].row);
      l.row = free.length ? free.pop() : rows++;
    }
    const lane = {kind: 'lives', name: kind, lives, rows: 1, height: kRow + 6, open: false};
    this.lifeLanes.set(kind, lane);
    return lane;
  }

  // ---- heights ----

  // Rows of a track that something in view is in.
  depthInView({slices}) {
    for (let depth = slices.rows.length; depth > 0; --depth) {
      const order = slices.rows[depth - 1];
      const i = firstAbove(order, slices.end, this.begin);
      if (i < order.length && slices.begin[order[i]] < this.end) return depth;
    }
    return 0;
  }
  // Rows of lifetimes in view, in the order shown: first those where something begins or ends.
  packInView(lane) {
    const rows = new Map();
    lane.seen = [];
    for (const l of lane.lives) {
      if ((l.end ?? Infinity) < this.begin || (l.begin ?? -Infinity) > this.end) continue;
      const changes = (l.begin ?? -Infinity) > this.begin || (l.end ?? Infinity) < this.end;
      rows.set(l.row, rows.get(l.row) || changes);
      lane.seen.push(l);
    }
    const order = [...rows.keys()].sort((a, b) => rows.get(b) - rows.get(a) || a - b);
    lane.rank = new Map(order.map((row, i) => [row, i]));
    const all = order.length;
    lane.fits = lane.open || all <= kFewRows ? all : kFewRows - 1;
    return all > kFewRows ? lane.fits + 1 : all;  // a row that says how many more there are, or closes them
  }
  // `settled`: lanes may become lower, not only higher, as while things move.
  layOut(settled) {
    const held = this.held !== null && this.laneAt(this.held) || this.lanes.find((l) => l.y >= this.scroll);
    const before = held && held.y;
    let y = 0;
    for (const lane of this.lanes) {
      if (lane.kind === 'calls' || lane.kind === 'lives') {
        const rows = Math.max(lane.kind === 'calls' ? this.depthInView(lane.track) : this.packInView(lane), 1);
        lane.rows = settled ? rows : Math.max(rows, lane.rows);
        lane.height = lane.rows * (lane.row || kRow) + 6;
      }
      lane.y = y;
      y += lane.height;
    }
    if (before !== undefined && settled) this.scroll += held.y - before;
    this.height = y;
  }
  laneAt(y) {
    const at = y - kTop + this.scroll;
    return y < kTop ? undefined : this.lanes.find((l) => at >= l.y && at < l.y + l.height);
  }

  // ---- time and pixels ----

  get scale() { return this.width / (this.end - this.begin); }
  x(t) { return kLabels + (t - this.begin) * this.scale; }
  time(x) { return this.begin + (x - kLabels) / this.scale; }

  go(begin, end, now = false) {
    const least = 1 / meta.unit;
    const length = Math.min(Math.max(end - begin, least * 20), meta.length * 1.02);
    const edge = meta.length * 0.01;
    begin = Math.min(Math.max(begin + (end - begin - length) / 2, -edge), meta.length + edge - length);
    this.wantBegin = begin;
    this.wantEnd = begin + length;
    if (now || this.still) {
      this.begin = this.wantBegin;
      this.end = this.wantEnd;
    }
    this.redraw();
  }
  // All of a range, with a margin.
  fit([begin, end]) {
    const margin = Math.max((end - begin) * 0.1, 20);
    this.go(begin - margin, end + margin);
  }
  zoom(factor, x) {
    const length = this.wantEnd - this.wantBegin;
    const share = Math.min(Math.max((x - kLabels) / this.width, 0), 1);
    const at = this.wantBegin + share * length;
    this.go(at - share * length * factor, at + (1 - share) * length * factor);
  }
  pan(share) {
    const by = (this.wantEnd - this.wantBegin) * share;
    this.go(this.wantBegin + by, this.wantEnd + by);
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.step();
    });
  }
  // One picture of the movement to the wanted range.
  step() {
    const least = (this.wantEnd - this.wantBegin) * 0.002;
    const near = Math.abs(this.wantBegin - this.begin) < least && Math.abs(this.wantEnd - this.end) < least;
    const part = near ? 1 : 0.4;
    this.begin += (this.wantBegin - this.begin) * part;
    this.end += (this.wantEnd - this.end) * part;
    this.draw(near && !this.dragging);
    if (!near) this.redraw();
    else if (this.settled) this.settled();
  }
}
