// Calls that a search found, in order of time over all tracks: thousands or a million, so as numbers.

class Matches {
  constructor(tracks, functions) {
    this.tracks = tracks;
    let lists = tracks.map(({slices: s}, t) => {
      const list = [];
      if (functions.size) for (let i = 0; i < s.count; ++i) if (functions.has(s.name[i])) list.push(t * 2 ** 32 + i);
      return Float64Array.from(list);
    });
    while (lists.length > 1) {
      const merged = [];
      for (let i = 0; i < lists.length; i += 2) merged.push(lists[i + 1] ? this.merge(lists[i], lists[i + 1]) : lists[i]);
      lists = merged;
    }
    this.list = lists[0] || new Float64Array(0);
    this.count = this.list.length;
  }
  at(k) {
    const code = this.list[k];
    return {type: 'slice', track: this.tracks[Math.floor(code / 2 ** 32)], index: code % 2 ** 32};
  }
  begin(code) { return this.tracks[Math.floor(code / 2 ** 32)].slices.begin[code % 2 ** 32]; }
  merge(a, b) {
    const out = new Float64Array(a.length + b.length);
    for (let i = 0, k = 0; i + k < out.length;) {
      const first = k === b.length || (i < a.length && this.begin(a[i]) <= this.begin(b[k]));
      out[i + k] = first ? a[i] : b[k];
      if (first) ++i;
      else ++k;
    }
    return out;
  }
  // The one before or after a call (which may be another function's); without one, the first or last.
  from(item, direction) {
    if (!item) return this.count ? this.at(direction > 0 ? 0 : this.count - 1) : null;
    const begin = item.track.slices.begin[item.index];
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.begin(this.list[middle]) < begin) low = middle + 1;
      else high = middle;
    }
    // Several can begin at one time.
    const code = this.tracks.indexOf(item.track) * 2 ** 32 + item.index;
    let at = low;
    while (at < this.count && this.list[at] !== code && this.begin(this.list[at]) === begin) ++at;
    const next = this.list[at] === code ? at + direction : direction > 0 ? low : low - 1;
    return next >= 0 && next < this.count ? this.at(next) : null;
  }
}
