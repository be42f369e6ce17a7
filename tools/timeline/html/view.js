// Actions in the picture: point at things, choose them, search.

class View extends Picture {
  laneAt(y) { return y < 24 ? undefined : this.lanes.find((l) => y - 24 + this.scroll >= l.y && y - 24 + this.scroll < l.y + l.height); }

  itemAt(x, y) {
    // The last drawn lies on top.
    for (let i = this.places.length - 1; i >= 0; --i) {
      const p = this.places[i];
      if (x >= p.x && x <= p.x + p.width && y >= p.y && y <= p.y + p.height) return p.item;
    }
    const lane = this.laneAt(y);
    if (!lane || x < kLabels) return null;
    const near = (spans, order) => this.nearest(spans, order, this.time(x));
    if (lane.kind === 'calls') {
      const depth = Math.floor((y - 27 + this.scroll - lane.y) / kRow);
      const order = lane.track.slices.rows[depth];
      const index = order ? near(lane.track.slices, order) : -1;
      return index < 0 ? null : {type: 'slice', track: lane.track, index};
    }
    if (lane.kind === 'runs' || lane.kind === 'blocks') {
      const spans = lane.cpu[lane.kind];
      const index = near(spans, spans.rows[0]);
      return index < 0 ? null : {type: lane.kind.slice(0, -1), cpu: lane.cpu, index};
    }
    return null;
  }
  // What covers instant t, or is within two pixels of it.
  nearest(spans, order, t) {
    const reach = 2 / this.scale;
    const i = firstAbove(order, spans.end, t - reach);
    if (i === order.length || spans.begin[order[i]] > t + reach) return -1;
    const next = order[i + 1];
    if (spans.end[order[i]] < t && next !== undefined && spans.begin[next] <= t) return next;
    return order[i];
  }
  parentOf(track, index) {
    const s = track.slices;
    for (let i = index; i >= 0; --i) {
      if (s.depth[i] < s.depth[index]) return i;
    }
    return -1;
  }
  spanOf(item) {
    if (item.type === 'missing') return [this.begin, this.end];
    if (item.type === 'poke') return [meta.pokes[item.index].time, meta.pokes[item.index].time];
    if (item.type === 'gap') return [meta.gaps[item.index].begin, meta.gaps[item.index].end];
    if (item.type === 'life') return [meta.lives[item.index].begin ?? 0, meta.lives[item.index].end ?? meta.length];
    const spans = item.track ? item.track.slices : item.cpu[item.type + 's'];
    return [spans.begin[item.index], spans.end[item.index]];
  }

  // Shows an item in the panel; with `move`, brings it into the picture.
  select(item, move = false) {
    this.selected = item;
    if (item) this.panel.show(item);
    if (item && move) {
      const [begin, end] = this.spanOf(item);
      const length = this.wantEnd - this.wantBegin;
      if (begin < this.wantBegin || begin > this.wantEnd || end - begin < length / 2000) {
        const wide = Math.max(Math.min(length, Math.max((end - begin) * 20, 2000)), end - begin);
        const middle = (begin + Math.min(end, begin + wide)) / 2;
        this.go(middle - wide / 2, middle + wide / 2);
      }
      this.scrollTo(item);
    }
    this.redraw();
  }
  scrollTo(item) {
    if (!item.track) return;
    if (this.closed.delete((item.track.kind === 'cpu' ? 'cpu' : 'thread') + item.track.id)) this.makeLanes();
    const lane = this.lanes.find((l) => l.track === item.track);
    if (!lane) return;
    const y = lane.y + item.track.slices.depth[item.index] * kRow;
    const room = this.bottom - 60;
    if (y < this.scroll || y > this.scroll + room) this.scroll = y - room / 2;
  }

  // ---- search ----

  // By part of a name, or by a whole one.
  search(text, whole = false) {
    const box = document.getElementById('search');
    box.value = text;
    const low = text.trim().toLowerCase();
    const found = [];
    meta.functions.forEach((f, i) => {
      if (low && (whole ? f.name === text : f.name.toLowerCase().includes(low)) && f.calls) found.push(i);
    });
    this.wanted = low ? new Set(found) : null;
    const calls = found.reduce((n, i) => n + meta.functions[i].calls, 0);
    document.getElementById('found').textContent = low ? `${grouped(calls)} calls` : '';
    if (low) {
      const functions = found.map((i) => meta.functions[i]).sort((a, b) => b.calls - a.calls);
      this.panel.matches(functions, text);
    }
    this.selected = null;
    this.redraw();
  }
  // The next call that the search found, in order of time over all tracks.
  nextFound(direction) {
    if (!this.wanted || this.wanted.size === 0) return;
    const from = this.selected && this.selected.type === 'slice' ? this.spanOf(this.selected)[0]
      : direction > 0 ? -Infinity : Infinity;
    let best = null, bestBegin = 0;
    const tracks = this.data.tracks.filter((t) => t.kind === 'cpu').length ? this.data.tracks.filter((t) => t.kind === 'cpu') : this.data.tracks;
    for (const track of tracks) {
      const s = track.slices;
      for (let i = 0; i < s.count; ++i) {
        const begin = s.begin[i];
        if ((begin - from) * direction <= 0 || !this.wanted.has(s.name[i])) continue;
        if (best && (begin - bestBegin) * direction >= 0) continue;
        best = {type: 'slice', track, index: i};
        bestBegin = begin;
      }
    }
    if (best) this.select(best, true);
  }
  nextPoke(direction) {
    const now = this.selected && this.selected.type === 'poke' ? this.selected.index : direction > 0 ? -1 : meta.pokes.length;
    if (meta.pokes[now + direction]) this.select({type: 'poke', index: now + direction}, true);
  }
}
