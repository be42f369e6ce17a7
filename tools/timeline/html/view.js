// Actions in the picture: point at things, choose them, search.

class View extends Frame {
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
      const depth = Math.floor((y - kTop - 3 + this.scroll - lane.y) / lane.row);
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
    if (item.type === 'range') return [item.begin, item.end];
    if (item.type === 'poke') return this.visitSpan(meta.pokes[item.index], meta.pokes[item.index].visits);
    if (item.type === 'gap') return [meta.gaps[item.index].begin, meta.gaps[item.index].end];
    if (item.type === 'life') return [meta.lives[item.index].begin ?? 0, meta.lives[item.index].end ?? meta.length];
    const spans = item.track ? item.track.slices : item.cpu[item.type + 's'];
    return [spans.begin[item.index], spans.end[item.index]];
  }
  // From the last old text that ran to the first new, the record in between.
  visitSpan(poke, visits) {
    const times = [poke.time];
    for (const v of visits) times.push(...[v.old, v.new].filter((t) => t !== null));
    return [Math.min(...times), Math.max(...times)];
  }

  // Shows an item in the panel; with `move`, brings it into the picture.
  select(item, move = false) {
    if (item && item.type === 'more') {
      item.lane.open = !item.lane.open;
      return this.redraw();
    }
    this.selected = item;
    if (item) {
      this.panel.show(item);
      this.say(describe(item));
    }
    if (item && move) this.bringIntoView(item);
    this.redraw();
  }
  bringIntoView(item) {
    const [begin, end] = this.spanOf(item);
    const length = this.wantEnd - this.wantBegin;
    if (item.type === 'poke' && meta.pokes[item.index].visits.length) this.fit([begin, end]);
    else if (begin < this.wantBegin || begin > this.wantEnd || end - begin < length / 2000) {
      const wide = Math.max(Math.min(length, Math.max((end - begin) * 20, 2000)), end - begin);
      const middle = (begin + Math.min(end, begin + wide)) / 2;
      this.go(middle - wide / 2, middle + wide / 2);
    }
    this.scrollTo(item);
  }
  scrollTo(item) {
    if (!item.track) return;
    if (this.closed.delete((item.track.kind === 'cpu' ? 'cpu' : 'thread') + item.track.id)) this.makeLanes();
    const lane = this.lanes.find((l) => l.track === item.track);
    if (!lane) return;
    const y = lane.y + item.track.slices.depth[item.index] * lane.row;
    const room = this.bottom - 60;
    if (y < this.scroll || y > this.scroll + room) this.scroll = y - room / 2;
  }
  toggle(key) {
    if (!this.closed.delete(key)) this.closed.add(key);
    this.makeLanes();
    this.redraw();
  }
  // For screen readers.
  say(text) { document.getElementById('said').textContent = text; }

  // ---- ranges ----

  sums(begin, end) {
    if (!this.lastSums || this.lastSums.begin !== begin || this.lastSums.end !== end) this.lastSums = new Sums(this.data, begin, end);
    return this.lastSums;
  }
  setRange(range) {
    this.range = range;
    if (range) this.select({type: 'range', begin: range[0], end: range[1]});
    else if (this.selected && this.selected.type === 'range') {
      this.selected = null;
      this.panel.about();
    }
    this.drawer.refresh();
    this.redraw();
  }

  // ---- search ----

  // By part of a name, or by a whole one.
  search(text, whole = false) {
    document.getElementById('search').value = text;
    const low = text.trim().toLowerCase();
    const matches = (name) => low && (whole ? name === text : name.toLowerCase().includes(low));
    const found = [];
    meta.functions.forEach((f, i) => { if (f.calls && matches(f.name)) found.push(i); });
    this.wanted = low ? new Set(found) : null;
    this.wholeName = whole;
    this.matches = new Matches(this.data.counted, this.wanted || new Set());
    document.getElementById('found').textContent = low ? plural(this.matches.count, 'call', 'calls') : '';
    if (low) {
      const functions = found.map((i) => meta.functions[i]).sort((a, b) => b.calls - a.calls);
      const pokes = meta.pokes.map((_, i) => i).filter((i) => matches(meta.pokes[i].symbol) || meta.pokes[i].address.includes(low));
      this.panel.matches({text, functions, calls: this.matches, lives: meta.lives.filter((l) => matches(l.name)), pokes});
    }
    this.selected = null;
    this.drawer.refresh();
    this.redraw();
  }
  nextFound(direction) {
    if (!this.wanted || this.matches.count === 0) return;
    const chosen = this.selected && this.selected.type === 'slice' ? this.selected : null;
    const next = this.matches.from(chosen, direction);
    if (next) this.select(next, true);
  }
  // `ran`: only changes whose code a CPU ran.
  nextPoke(direction, ran = false) {
    let i = this.selected && this.selected.type === 'poke' ? this.selected.index : direction > 0 ? -1 : meta.pokes.length;
    do i += direction;
    while (meta.pokes[i] && ran && meta.pokes[i].visits.length === 0);
    if (meta.pokes[i]) this.select({type: 'poke', index: i}, true);
    else this.say(ran ? 'no further change that a CPU ran' : 'no further change');
  }
}
