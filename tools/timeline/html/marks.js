// Draws what happened to text and to the trace: gaps, changes, lifetimes; and what is selected.

class Marks extends Picture {
  health(lane, y) {
    this.box(0, meta.length, y + 4, 5, theme.sound);
    for (const index of lane.cpu.gaps) {
      const g = meta.gaps[index];
      if (g.end < this.begin || g.begin > this.end) continue;
      const [x, width] = this.box(g.begin, g.end, y + 2, 10, kGapColors[g.code.split('-')[1]] || theme.dim);
      this.places.push({x: x - 3, y: y + 1, width: width + 6, height: 12, item: {type: 'gap', index}});
    }
  }

  pokes(lane, y) {
    const middle = y + 11;
    const chosen = this.selected && this.selected.type === 'poke' ? this.selected.index : -1;
    for (const p of meta.pokes) {
      if (p.end > p.begin && p.end > this.begin && p.begin < this.end) this.box(p.begin, p.end, middle - 3, 6, theme.window);
    }
    // `ran`: full; a change whose code no CPU ran is hollow.
    const mark = (index, size) => {
      const x = this.x(meta.pokes[index].time);
      this.diamond(x, middle, size, meta.pokes[index].visits.length > 0);
      this.places.push({x: x - size, y: middle - size, width: 2 * size, height: 2 * size, item: {type: 'poke', index}});
    };
    // Marks that would hide each other are drawn once; the chosen one always, and on top.
    let last = -10;
    meta.pokes.forEach((p, index) => {
      const x = this.x(p.time);
      if (x < kLabels - 8 || x > kLabels + this.width + 8 || x - last < 2) return;
      last = x;
      mark(index, 6);
    });
    if (chosen >= 0) mark(chosen, 9);
  }
  diamond(x, y, size, full) {
    const c = this.c;
    c.beginPath();
    c.moveTo(x, y - size);
    c.lineTo(x + size, y);
    c.lineTo(x, y + size);
    c.lineTo(x - size, y);
    c.closePath();
    c.fillStyle = full ? theme.mark : theme.paper;
    c.strokeStyle = full ? theme.paper : theme.mark;
    c.lineWidth = 1;
    c.fill();
    c.stroke();
  }

  lives(lane, y) {
    for (const l of lane.seen) {
      const rank = lane.rank.get(l.row);
      const top = y + 3 + rank * kRow;
      if (rank >= lane.fits || top + kRow < kTop || top > this.bottom) continue;
      const hue = l.kind === 'bpf' ? kHues.bpf : l.kind === 'module' ? kHues.module : 250;
      const color = theme.dark ? colorOf(hue, 0.3, 0.32) : colorOf(hue, 0.55, 0.82);
      const [x, width] = this.box(l.begin ?? -meta.length, l.end ?? 2 * meta.length, top, kRow - 1.5, color, l.name);
      this.places.push({x, y: top, width, height: kRow - 1.5, item: {type: 'life', index: l.index}});
    }
    if (lane.rank.size <= kFewRows) return;
    const top = y + 3 + lane.fits * kRow;
    this.c.fillStyle = theme.dim;
    const hidden = lane.seen.filter((l) => lane.rank.get(l.row) >= lane.fits).length;
    this.c.fillText(lane.open ? '▴ fewer' : `▾ ${grouped(hidden)} more`, kLabels + 6, top + kRow / 2);
    this.places.push({x: kLabels, y: top, width: this.width, height: kRow, item: {type: 'more', lane}});
  }

  line(x, color, top, bottom) {
    const c = this.c;
    c.strokeStyle = color;
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(x, top);
    c.lineTo(x, bottom);
    c.stroke();
  }
  drawRange() {
    if (!this.range) return;
    const x0 = Math.max(this.x(this.range[0]), kLabels), x1 = Math.min(this.x(this.range[1]), kLabels + this.width);
    if (x1 < kLabels || x0 > kLabels + this.width) return;
    this.c.fillStyle = theme.range;
    this.c.fillRect(x0, 0, Math.max(x1 - x0, 1), this.bottom);
  }
  drawSelection() {
    this.drawRange();
    const item = this.selected;
    if (!item) return;
    if (item.type === 'poke') {
      const p = meta.pokes[item.index];
      this.line(this.x(p.time), theme.mark, kTop, this.bottom);
      // On each CPU: the last run of the old text, and the first of the new.
      for (const lane of this.lanes) {
        const v = lane.kind === 'calls' && lane.track.kind === 'cpu' && p.visits.find((o) => o.cpu === lane.track.cpu);
        if (!v) continue;
        const y = lane.y - this.scroll + kTop;
        if (v.old !== null) this.line(this.x(v.old), theme.mark, y, y + lane.height);
        if (v.new !== null) this.line(this.x(v.new), theme.fresh, y, y + lane.height);
      }
    } else if (item.type === 'slice' || item.type === 'block' || item.type === 'run') {
      const lane = this.lanes.find((l) => (item.track ? l.track === item.track : l.cpu === item.cpu && l.kind === item.type + 's'));
      if (!lane) return;
      const spans = item.track ? item.track.slices : item.cpu[item.type + 's'];
      const row = lane.row || kRow;
      const y = lane.y - this.scroll + kTop + 3 + (item.track ? spans.depth[item.index] * row : 0);
      const x = Math.max(this.x(spans.begin[item.index]), kLabels), end = Math.min(this.x(spans.end[item.index]), kLabels + this.width);
      if (end < kLabels || x > kLabels + this.width) return;
      this.c.strokeStyle = theme.ink;
      this.c.lineWidth = 2;
      this.c.strokeRect(x, y, Math.max(end - x, 2), row - 2);
    }
  }
}
