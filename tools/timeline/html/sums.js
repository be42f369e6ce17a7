// Sums over a range of time, both ends included, as `asof query` and `asof stacks` have them for it.

// Index of the first of sorted times that is later than t.
function pointAfter(points, t) {
  let low = 0, high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle] > t) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Drawn positions lie between two instants of the trace; the first of them is the time that tables have. Where the page
// has no such instants (captures of threads), the drawn position is taken.
function realTimes(track, cpus) {
  if (track.times) return track.times;
  const s = track.slices;
  const cpu = cpus.find((c) => c.cpu === track.cpu);
  if (track.kind !== 'cpu' || !cpu) return s;
  const before = (t) => cpu.points[Math.max(pointAfter(cpu.points, t) - 1, 0)] ?? t;
  track.times = {begin: s.begin.map(before), end: s.end.map(before)};
  return track.times;
}

// Time of a CPU in which its flow is not known, up to an instant: no call has it as its own.
class Lost {
  constructor(cpu) {
    this.begin = [];
    this.end = [];
    this.before = [];  // of all that lie before each
    let sum = 0;
    for (const g of (cpu ? cpu.gaps : []).map((i) => meta.gaps[i]).sort((a, b) => a.begin - b.begin)) {
      const begin = Math.max(g.begin, this.end.at(-1) ?? -Infinity);
      if (g.end <= begin) continue;
      this.begin.push(begin);
      this.end.push(g.end);
      this.before.push(sum);
      sum += g.end - begin;
    }
  }
  until(t) {
    const i = pointAfter(this.begin, t) - 1;
    return i < 0 ? 0 : this.before[i] + Math.min(t, this.end[i]) - this.begin[i];
  }
  within(a, b) { return this.begin.length ? this.until(b) - this.until(a) : 0; }
}

// A place in the tree of calls, for the flame graph; what it has is its own.
class CallNode {
  constructor(name) {
    this.name = name;  // of a function; -1: all
    this.calls = this.time = this.least = 0;
    this.children = new Map();
  }
  child(name) {
    let node = this.children.get(name);
    if (!node) this.children.set(name, node = new CallNode(name));
    return node;
  }
  // With all below it.
  weigh(weight) {
    this.value = this[weight];
    for (const child of this.children.values()) this.value += child.weigh(weight);
    return this.value;
  }
}

class Sums {
  // Of a function: calls (that begin in the range), own time and that with callees, both without gaps, and bounds of
  // instructions: those of calls that lie in the range, and those of all that reach into it.
  constructor(data, begin, end) {
    this.begin = begin;
    this.end = end;
    this.functions = new Map();
    this.root = new CallNode(-1);
    this.tracks = data.counted.map((track) => this.track(data, track, realTimes(track, data.cpus)));
    this.pokes = meta.pokes.filter((p) => p.time >= begin && p.time <= end).length;
    this.gaps = meta.gaps.filter((g) => g.begin <= end && g.end >= begin).length;
  }

  of(name) {
    let f = this.functions.get(name);
    if (!f) this.functions.set(name, f = {calls: 0, time: 0, all: 0, least: 0, most: 0, allLeast: 0, allMost: 0, open: 0});
    return f;
  }

  track(data, track, times) {
    const s = track.slices;
    const sum = {name: track.name, calls: 0, time: 0, least: 0, most: 0};
    const open = [];
    const lost = new Lost(track.kind === 'cpu' && data.cpus.find((c) => c.cpu === track.cpu));
    const close = (depth) => { for (; open.length > depth; open.pop()) if (open[open.length - 1]) --open[open.length - 1].f.open; };
    for (let i = 0; i < s.count && times.begin[i] <= this.end; ++i) {
      close(s.depth[i]);
      if (times.end[i] < this.begin) {
        open.push(null);
        continue;
      }
      const parent = open[open.length - 1];
      const name = meta.functions[s.name[i]].sum;
      const f = this.of(name), node = (parent ? parent.node : this.root).child(name);
      const from = Math.max(times.begin[i], this.begin), to = Math.min(times.end[i], this.end);
      const time = to - from - lost.within(from, to);
      const whole = times.begin[i] >= this.begin && times.end[i] <= this.end;
      const calls = meta.kinds[s.kind[i]].begins && times.begin[i] >= this.begin ? 1 : 0;
      for (const o of [f, node, sum]) {
        o.calls += calls;
        if (whole) o.least += s.self[i];
      }
      f.most += s.self[i];
      sum.most += s.self[i];
      if (!parent) sum.time += time;
      this.addTime(f, node, parent, time);
      // Of a function that calls itself, what lies within is counted once.
      if (!f.open) {
        f.all += time;
        f.allMost += s.instructions[i];
        if (whole) f.allLeast += s.instructions[i];
      }
      ++f.open;
      open.push({f, node});
    }
    close(0);
    return sum;
  }

  // To a call; its caller has less of its own.
  addTime(f, node, parent, time) {
    f.time += time;
    node.time += time;
    if (!parent) return;
    parent.f.time -= time;
    parent.node.time -= time;
  }
}
