// What is shown where: lanes below each other, time to the right.

const kLabels = 150;  // width of the left column
const kRow = 16;
const kFont = '11px system-ui, "DejaVu Sans", sans-serif';
const kMono = '11px ui-monospace, "DejaVu Sans Mono", monospace';
const kLetter = 6.1;  // about as wide as a letter of kFont
const kGapColors = {LOST: '#d92d20', FLOW: '#c11574', TEXT: '#dc6803', DATA: '#7a2e0e', SIDE: '#475467', FILE: '#475467'};
const kHues = {kernel: 215, module: 185, user: 140, bpf: 35, trampoline: 300, slot: 330, unnamed: 0, untraced: 0};
const kFound = '#f79009', kInk = '#1d2430', kDim = '#667085', kLine = '#d8dee8', kBand = '#f4f6fa', kPoke = '#b42318';

class Lanes {
  constructor(data) {
    this.data = data;
    this.canvas = document.getElementById('lanes');
    this.overview = document.getElementById('overview');
    this.thin = new ThinRow();
    this.panel = new Panel(document.getElementById('panel'), this);
    this.colors = colorsOf(meta.functions);
    this.pixels = Uint32Array.from(this.colors, pixel);
    const color = new Map(meta.functions.map((f, i) => [f.name, this.colors[i]]));
    for (const b of meta.blocks) b.color = b.changed ? '#fda29b' : color.get(b.symbol.split('+')[0]) || '#d5d9eb';
    this.begin = this.wantBegin = 0;
    this.end = this.wantEnd = meta.length;
    this.scroll = this.bottom = 0;
    this.width = 1;
    this.closed = new Set();
    this.selected = null;
    this.wanted = null;  // functions that the search found
    this.places = [];    // of what was drawn: for clicks on marks
    this.countCalls();
    this.makeLanes();
  }

  countCalls() {
    for (const f of meta.functions) f.calls = 0;
    for (const t of this.data.tracks) {
      if (t.kind === 'thread' && this.data.tracks.some((o) => o.kind === 'cpu')) continue;
      for (const name of t.slices.name) ++meta.functions[name].calls;
    }
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
    for (const kind of [...new Set(meta.lives.map((l) => l.kind))]) {
      text.push({kind: 'lives', name: kind, lives: meta.lives.filter((l) => l.kind === kind)});
    }
    for (const lane of text) if (lane.lives) this.packLives(lane);
    group('text', 'Text', text);
    for (const cpu of this.data.cpus) group('cpu' + cpu.id, cpu.name, this.cpuLanes(cpu));
    for (const track of this.data.tracks.filter((t) => t.kind === 'thread')) {
      group('thread' + track.id, track.name, [this.callLane(track)]);
    }
    let y = 0;
    for (const lane of lanes) {
      lane.y = y;
      y += lane.height;
    }
    this.lanes = lanes;
    this.height = y;
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
    return {kind: 'calls', track, name: 'calls', height: Math.max(1, track.slices.rows.length) * kRow + 6};
  }

  // Lifetimes overlap: each goes into the first row that is free.
  packLives(lane) {
    const ends = [];
    for (const l of lane.lives) {
      const begin = l.begin ?? -1;
      let row = ends.findIndex((e) => e <= begin);
      if (row < 0) row = Math.min(ends.length, 7);
      ends[row] = l.end ?? Infinity;
      l.row = row;
    }
    lane.height = ends.length * kRow + 6;
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
    if (now) {
      this.begin = this.wantBegin;
      this.end = this.wantEnd;
    }
    this.redraw();
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
    this.draw();
    if (!near) this.redraw();
  }
}
