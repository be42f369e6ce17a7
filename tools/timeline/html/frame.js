// Draws what is around the lanes: the axis, the names on the left, the strip of the whole capture.

class Frame extends Marks {
  context(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const c = canvas.getContext('2d');
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    return c;
  }

  draw(settled) {
    // Queried once: the browser would lay the page out anew each time.
    kLabels = this.canvas.clientWidth < 600 ? 92 : 150;
    this.width = Math.max(this.canvas.clientWidth - kLabels, 1);
    const height = this.bottom = this.canvas.clientHeight;
    const c = this.c = this.context(this.canvas);
    this.layOut(settled);
    this.scroll = Math.min(Math.max(this.scroll, 0), Math.max(this.height - height + 40, 0));
    this.places = [];
    c.font = kFont;
    c.textBaseline = 'middle';
    this.missing = null;
    const marks = this.marks();
    this.drawGrid(marks);
    for (const lane of this.lanes) {
      const y = lane.y - this.scroll + kTop;
      if (y + lane.height < kTop || y > height) continue;
      this[lane.kind](lane, y);
    }
    this.drawSelection();
    this.drawRuler(marks);
    this.drawLabels(height);
    this.drawOverview();
    const text = `${clockText(Math.max(this.begin, 0))} + ${spanText(this.end - this.begin)}`;
    document.getElementById('range').textContent = text;
    document.getElementById('notice').textContent = this.missing || '';
  }

  // Where the axis has its marks: about every 100 pixels.
  marks() {
    let step = 10 ** Math.ceil(Math.log10((this.end - this.begin) / this.width * 100));
    if (step / 5 * this.scale > 100) step /= 5;
    else if (step / 2 * this.scale > 100) step /= 2;
    const marks = [];
    // Before the first instruction there is nothing to count.
    for (let k = Math.ceil((hasTime() ? this.begin : Math.max(this.begin, 0)) / step); k * step < this.end; ++k) marks.push(k * step);
    return marks;
  }
  drawGrid(marks) {
    const c = this.c;
    c.fillStyle = theme.grid;
    for (const t of marks) c.fillRect(Math.round(this.x(t)), 22, 1, this.bottom);
  }
  drawRuler(marks) {
    const c = this.c;
    c.fillStyle = theme.paper;
    c.fillRect(0, 0, kLabels + this.width, 22);
    if (this.range) {
      const x0 = Math.max(this.x(this.range[0]), kLabels), x1 = Math.min(this.x(this.range[1]), kLabels + this.width);
      c.fillStyle = theme.range;
      if (x1 > x0) c.fillRect(x0, 0, x1 - x0, 22);
    }
    c.fillStyle = theme.dim;
    let free = 0;  // of the text before
    marks.forEach((t, i) => {
      const x = Math.round(this.x(t));
      c.fillRect(x, 16, 1, 6);
      // The first one whole, the others after it: no digits that stay the same.
      const text = i > 0 ? stepText(t - marks[0]) : hasTime() ? clockText(t) : grouped(t);
      const width = c.measureText(text).width;
      if (x + 4 < free || x + 4 + width > kLabels + this.width) return;
      c.fillText(text, x + 4, 11);
      free = x + 10 + width;
    });
  }

  drawLabels(height) {
    const c = this.c;
    c.fillStyle = theme.paper;
    c.fillRect(0, 0, kLabels - 1, height);
    const letters = Math.floor((kLabels - 24) / kLetter);
    const cut = (name) => name.length > letters ? name.slice(0, letters - 1) + '…' : name;
    for (const lane of this.lanes) {
      const y = lane.y - this.scroll + kTop;
      if (y + lane.height < kTop || y > height) continue;
      if (lane.kind === 'group') {
        c.fillStyle = theme.band;
        c.fillRect(0, y, kLabels - 1, lane.height - 2);
        c.fillStyle = theme.ink;
        c.font = 'bold ' + kFont;
        c.fillText((this.closed.has(lane.key) ? '▸ ' : '▾ ') + cut(lane.name), 8, y + 10);
        c.font = kFont;
      } else {
        c.fillStyle = theme.dim;
        // A lane that is higher than the picture keeps its name in view.
        const top = Math.min(Math.max(y, kTop), y + lane.height - kRow);
        c.fillText(cut(lane.name), 20, top + Math.min(lane.height, kRow + 6) / 2);
      }
    }
    c.fillStyle = theme.paper;
    c.fillRect(0, 0, kLabels - 1, 22);
    c.fillStyle = theme.dim;
    c.fillText(hasTime() ? 'seconds' : 'instructions', 20, 11);
    c.fillStyle = theme.line;
    c.fillRect(kLabels - 1, 0, 1, height);
    c.fillRect(0, 22, kLabels + this.width, 1);
  }

  // The strip, above the same part of the window as the lanes.
  drawOverview() {
    const c = this.context(this.overview);
    const width = this.width, height = this.overview.clientHeight;
    const at = (t) => kLabels + t / meta.length * width;
    if (!this.whole || this.wholeWidth !== width) this.whole = this.pictureOfAll(width, height);
    this.wholeWidth = width;
    c.drawImage(this.whole, kLabels, 0, width, height);
    c.font = kFont;
    c.textBaseline = 'middle';
    c.fillStyle = theme.dim;
    c.fillText(kLabels < 150 ? 'all' : 'whole capture', 20, height / 2);
    c.fillStyle = theme.shade;
    c.fillRect(kLabels, 0, Math.max(at(this.begin) - kLabels, 0), height);
    c.fillRect(at(this.end), 0, Math.max(kLabels + width - at(this.end), 0), height);
    if (this.range) {
      c.fillStyle = theme.range;
      c.fillRect(at(this.range[0]), 0, Math.max(at(this.range[1]) - at(this.range[0]), 1), height);
    }
    c.strokeStyle = theme.ink;
    c.lineWidth = 1;
    const x0 = Math.max(at(this.begin), kLabels), x1 = Math.min(at(this.end), kLabels + width);
    c.strokeRect(Math.floor(x0) + 0.5, 0.5, Math.max(x1 - x0 - 1, 2), height - 1);
  }
  // Instructions, gaps and changes of text of the whole capture; drawn once.
  pictureOfAll(width, height) {
    const picture = document.createElement('canvas');
    const ratio = window.devicePixelRatio || 1;
    picture.width = Math.ceil(width * ratio);
    picture.height = Math.ceil(height * ratio);
    const c = picture.getContext('2d');
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const at = (t) => t / meta.length * width;
    const tracks = this.data.counted;
    const each = (height - 12) / Math.max(tracks.length, 1);
    tracks.forEach((track, k) => {
      const y = 10 + k * each;
      c.fillStyle = theme.density;
      this.density(track, Math.ceil(width)).forEach((d, i) => c.fillRect(i, y + each - d * (each - 2), 1, d * (each - 2)));
      const cpu = track.kind === 'cpu' && this.data.cpus.find((o) => o.cpu === track.cpu);
      for (const index of cpu ? cpu.gaps : []) {
        const g = meta.gaps[index];
        c.fillStyle = kGapColors[g.code.split('-')[1]] || theme.dim;
        c.fillRect(at(g.begin), y, Math.max(at(g.end) - at(g.begin), 1), each);
      }
    });
    c.fillStyle = theme.mark;
    for (const p of meta.pokes) c.fillRect(at(p.time), 1, 1, 7);
    return picture;
  }
  // Instructions of a track by part of the capture, the largest being 1.
  density({slices: s}, parts) {
    const out = new Float64Array(parts);
    for (let i = 0; i < s.count; ++i) {
      const a = Math.floor(s.begin[i] / meta.length * parts), b = Math.floor(s.end[i] / meta.length * parts);
      const first = Math.max(Math.min(a, parts - 1), 0), last = Math.max(Math.min(b, parts - 1), 0);
      for (let k = first; k <= last; ++k) out[k] += s.self[i] / (last - first + 1);
    }
    const most = out.reduce((m, v) => Math.max(m, v), 1e-9);
    return out.map((v) => Math.sqrt(v / most));  // so that quiet times are seen, too
  }
}
