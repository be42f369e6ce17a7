// Draws the lanes. Everything is drawn anew for each picture, from sorted rows by binary search, so that its cost grows
// with pixels and not with the capture.

function colorOf(hue, saturation, lightness) {
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    const value = lightness - saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(value * 255).toString(16).padStart(2, '0');
  };
  return '#' + part(0) + part(8) + part(4);
}

// The hue shows the kind of code; shades distinguish functions.
function colorsOf(functions) {
  return functions.map((f) => {
    if (f.kind === 'untraced' || f.kind === 'unnamed') return '#e4e7ec';
    let mix = 0;
    for (let k = 0; k < f.name.length; ++k) mix = (mix * 31 + f.name.charCodeAt(k)) >>> 0;
    return colorOf((kHues[f.kind] + 360 + mix % 37 - 18) % 360, 0.5 + (mix >> 6) % 25 / 100, 0.74 + (mix >> 11) % 11 / 100);
  });
}

// '#rrggbb' as a picture has it in memory (of a machine with the low byte first, as all that run browsers).
function pixel(color) {
  const rgb = parseInt(color.slice(1), 16);
  return (0xff000000 | (rgb & 255) << 16 | (rgb & 0xff00) | rgb >> 16) >>> 0;
}
const kFoundPixel = pixel(kFound);

// Things of a pixel's width in one row: thousands of them, so they are put into a picture one pixel high, which is
// then drawn at once.
class ThinRow {
  start(width) {
    width = Math.max(Math.ceil(width), 1);
    if (!this.canvas || this.canvas.width !== width) {
      this.canvas = document.createElement('canvas');
      this.canvas.width = width;
      this.canvas.height = 1;
      this.context = this.canvas.getContext('2d');
      this.picture = this.context.createImageData(width, 1);
      this.pixels = new Uint32Array(this.picture.data.buffer);
    }
    this.pixels.fill(0);
    this.empty = true;
  }
  put(x, color, strong) {  // color: of pixel()
    const at = Math.min(Math.max(Math.floor(x), 0), this.canvas.width - 1);
    this.pixels[at] = strong ? color : color & 0x4dffffff;
    this.empty = false;
  }
  draw(c, top) {
    if (this.empty) return;
    this.context.putImageData(this.picture, 0, 0);
    c.imageSmoothingEnabled = false;
    c.drawImage(this.canvas, kLabels, top, this.canvas.width, kRow - 1.5);
  }
}

class Picture extends Lanes {
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

  draw() {
    // Queried once: the browser would lay the page out anew each time.
    this.width = Math.max(this.canvas.clientWidth - kLabels, 1);
    const height = this.bottom = this.canvas.clientHeight;
    const c = this.c = this.context(this.canvas);
    this.scroll = Math.min(Math.max(this.scroll, 0), Math.max(this.height - height + 40, 0));
    this.places = [];
    c.font = kFont;
    c.textBaseline = 'middle';
    this.missing = null;
    const marks = this.marks();
    this.drawGrid(marks);
    for (const lane of this.lanes) {
      const y = lane.y - this.scroll + 24;
      if (y + lane.height < 24 || y > height) continue;
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

  // Fills [t0, t1] in a row, with text when there is room; at least a pixel.
  box(t0, t1, y, height, color, text) {
    const c = this.c;
    const x0 = Math.max(this.x(t0), kLabels - 2), x1 = Math.min(this.x(t1), kLabels + this.width + 2);
    const width = Math.max(x1 - x0, 1);
    c.fillStyle = color;
    c.fillRect(x0, y, width > 3 ? width - 0.6 : width, height);
    if (width > 26 && text) this.label(text, x0, width, y + height / 2);
    return [x0, width];
  }
  label(text, x, width, y) {
    const room = Math.floor((width - 6) / kLetter);
    this.c.fillStyle = kInk;
    this.c.fillText(text.length <= room ? text : text.slice(0, Math.max(room - 1, 1)) + '…', x + 3, y + 0.5);
  }

  // Calls of one row that are in the picture; what is closer than a pixel is drawn once.
  eachVisible(spans, order, visit) {
    const pixel = 1 / this.scale;
    let i = firstAbove(order, spans.end, this.begin);
    while (i < order.length && spans.begin[order[i]] < this.end) {
      const index = order[i];
      const tiny = spans.end[index] - spans.begin[index] < pixel;
      visit(index, tiny);
      // After a tiny one, continue with the first that ends beyond its pixel.
      i = tiny ? Math.max(i + 1, firstAbove(order, spans.end, spans.begin[index] + pixel, i)) : i + 1;
    }
  }

  calls(lane, y) {
    const {track} = lane;
    const s = track.slices;
    s.rows.forEach((order, depth) => {
      const top = y + 3 + depth * kRow;
      if (top + kRow < 24 || top > this.bottom) return;
      this.thin.start(this.width);
      this.eachVisible(s, order, (i, tiny) => {
        const found = this.wanted && this.wanted.has(s.name[i]);
        if (tiny) this.thin.put(this.x(s.begin[i]) - kLabels, found ? kFoundPixel : this.pixels[s.name[i]], !this.wanted || found);
        else this.call(s, i, top, found);
      });
      this.thin.draw(this.c, top);
    });
  }
  call(s, i, top, found) {
    const c = this.c;
    const name = s.name[i];
    const kind = meta.kinds[s.kind[i]];
    c.globalAlpha = this.wanted && !found ? 0.3 : 1;
    const [x, width] = this.box(s.begin[i], s.end[i], top, kRow - 1.5, this.colors[name], functionName(name, kind.version));
    if (kind.gap && width > 3) this.stripes(x, width, top);
    if (kind.open && width > 6) this.openEnds(x, width, top, kind);
    if (found) {
      c.strokeStyle = kFound;
      c.lineWidth = 2;
      c.strokeRect(x + 1, top + 1, Math.max(width - 2, 1), kRow - 3.5);
    }
    c.globalAlpha = 1;
  }
  stripes(x, width, top) {
    const c = this.c;
    c.save();
    c.beginPath();
    c.rect(x, top, width, kRow - 1.5);
    c.clip();
    c.strokeStyle = 'rgba(29,36,48,.13)';
    c.lineWidth = 2;
    c.beginPath();
    for (let k = Math.floor((x - kRow) / 7) * 7; k < x + width; k += 7) {
      c.moveTo(k, top + kRow);
      c.lineTo(k + kRow, top);
    }
    c.stroke();
    c.restore();
  }
  openEnds(x, width, top, kind) {
    const c = this.c;
    c.strokeStyle = kDim;
    c.lineWidth = 2;
    c.setLineDash([2, 2]);
    c.beginPath();
    if (kind.open & 1) {
      c.moveTo(x + 1, top);
      c.lineTo(x + 1, top + kRow - 1.5);
    }
    if (kind.open & 2) {
      c.moveTo(x + width - 1.5, top);
      c.lineTo(x + width - 1.5, top + kRow - 1.5);
    }
    c.stroke();
    c.setLineDash([]);
  }

  runs(lane, y) {
    const {runs} = lane.cpu;
    this.eachVisible(runs, runs.rows[0], (i, tiny) => {
      const t = meta.threads[runs.what[i]];
      this.box(runs.begin[i], runs.end[i], y + 2, kRow, t.idle ? '#eef1f6' : `hsl(${(t.tid * 67) % 360} 40% 86%)`,
               tiny ? '' : t.name);
    });
  }

  health(lane, y) {
    this.box(0, meta.length, y + 4, 5, '#d3eedd');
    for (const index of lane.cpu.gaps) {
      const g = meta.gaps[index];
      if (g.end < this.begin || g.begin > this.end) continue;
      const [x, width] = this.box(g.begin, g.end, y + 2, 10, kGapColors[g.code.split('-')[1]] || kDim);
      this.places.push({x: x - 3, y: y + 1, width: width + 6, height: 12, item: {type: 'gap', index}});
    }
  }

  pokes(lane, y) {
    const middle = y + 11;
    const isChosen = (index) => this.selected && this.selected.type === 'poke' && this.selected.index === index;
    for (const p of meta.pokes) {
      if (p.end > p.begin && p.end > this.begin && p.begin < this.end) this.box(p.begin, p.end, middle - 3, 6, '#fecdca');
    }
    const mark = (index, size) => {
      const x = this.x(meta.pokes[index].time);
      this.diamond(x, middle, size, isChosen(index) ? '#7a271a' : kPoke);
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
    if (this.selected && this.selected.type === 'poke') mark(this.selected.index, 9);
  }
  diamond(x, y, size, color) {
    const c = this.c;
    c.fillStyle = color;
    c.strokeStyle = '#fff';
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, y - size);
    c.lineTo(x + size, y);
    c.lineTo(x, y + size);
    c.lineTo(x - size, y);
    c.closePath();
    c.fill();
    c.stroke();
  }

  lives(lane, y) {
    for (const l of lane.lives) {
      const begin = l.begin ?? -meta.length, end = l.end ?? 2 * meta.length;
      if (end < this.begin || begin > this.end) continue;
      const top = y + 3 + l.row * kRow;
      const [x, width] = this.box(begin, end, top, kRow - 2, lane.name === 'bpf' ? '#fedf89' : '#d5d9eb', l.name);
      this.places.push({x: x - 2, y: top, width: width + 4, height: kRow - 2, item: {type: 'life', index: l.index}});
    }
  }

  blocks(lane, y) {
    const {cpu} = lane;
    const length = this.end - this.begin;
    this.eachVisible(cpu.blocks, cpu.blocks.rows[0], (i, tiny) => this.block(cpu.blocks, i, y + 3, tiny));
    const covered = cpu.blocks.count > 0 && meta.windows.some(([a, b]) => a < this.end && b > this.begin);
    if (covered || length > meta.closeUp) return;
    // Shown where instructions would be expected, with the command that gets them.
    this.c.fillStyle = kDim;
    this.c.fillText('not in this file: click', kLabels + 6, y + 11);
    const range = meta.clock === 'ns' ? ` --time ${clockText(Math.max(this.begin, 0))},${clockText(Math.max(this.end, 0))}` : '';
    this.command = `${meta.again} --detail insn${range}`;
    this.missing = `instructions of this window are not in this file; to get them: ${this.command}`;
    this.places.push({x: kLabels, y, width: this.width, height: lane.height, item: {type: 'missing'}});
  }
  block(blocks, i, top, tiny) {
    const b = meta.blocks[blocks.what[i]];
    const length = blocks.end[i] - blocks.begin[i];
    const each = length / b.lines.length;
    if (tiny || each * this.scale < 45) {
      this.box(blocks.begin[i], blocks.end[i], top, kRow, b.color, tiny ? '' : b.symbol);
      return;
    }
    this.c.font = kMono;
    b.texts.forEach((text, k) => {
      const begin = blocks.begin[i] + k * each;
      if (begin + each < this.begin || begin > this.end) return;
      this.box(begin, begin + each, top, kRow, b.color, text);
    });
    this.c.font = kFont;
  }

  group(lane, y) {
    this.c.fillStyle = kBand;
    this.c.fillRect(0, y, kLabels + this.width, lane.height - 2);
  }

  // Where the ruler has its marks: about every 100 pixels.
  marks() {
    let step = 10 ** Math.ceil(Math.log10((this.end - this.begin) / this.width * 100));
    if (step / 5 * this.scale > 100) step /= 5;
    else if (step / 2 * this.scale > 100) step /= 2;
    const marks = [];
    for (let k = Math.ceil(this.begin / step); k * step < this.end; ++k) marks.push(k * step);
    return marks;
  }
  drawGrid(marks) {
    const c = this.c;
    c.fillStyle = '#eceff4';
    for (const t of marks) c.fillRect(Math.round(this.x(t)), 22, 1, this.bottom);
  }
  drawRuler(marks) {
    const c = this.c;
    c.fillStyle = '#fff';
    c.fillRect(0, 0, kLabels + this.width, 22);
    c.fillStyle = kDim;
    marks.forEach((t, i) => {
      const x = Math.round(this.x(t));
      c.fillRect(x, 16, 1, 6);
      // The first one whole, the others after it: no digits that stay the same.
      if (i === 0) c.fillText(clockText(t), x + 4, 11);
      else c.fillText('+' + spanText(t - marks[0]), x + 4, 11);
    });
  }

  drawLabels(height) {
    const c = this.c;
    c.fillStyle = '#fff';
    c.fillRect(0, 0, kLabels - 1, height);
    for (const lane of this.lanes) {
      const y = lane.y - this.scroll + 24;
      if (y + lane.height < 24 || y > height) continue;
      if (lane.kind === 'group') {
        c.fillStyle = kBand;
        c.fillRect(0, y, kLabels - 1, lane.height - 2);
        c.fillStyle = kInk;
        c.font = 'bold ' + kFont;
        const name = lane.name.length > 20 ? lane.name.slice(0, 19) + '…' : lane.name;
        c.fillText((this.closed.has(lane.key) ? '▸ ' : '▾ ') + name, 8, y + 10);
        c.font = kFont;
      } else {
        c.fillStyle = kDim;
        c.fillText(lane.name, 20, y + Math.min(lane.height, kRow + 6) / 2);
      }
    }
    c.fillStyle = '#fff';
    c.fillRect(0, 0, kLabels - 1, 22);
    c.fillStyle = kLine;
    c.fillRect(kLabels - 1, 0, 1, height);
    c.fillRect(0, 22, kLabels + this.width, 1);
  }

  drawSelection() {
    const c = this.c;
    const item = this.selected;
    if (!item) return;
    const line = (x, color, top, bottom) => {
      c.strokeStyle = color;
      c.lineWidth = 1.5;
      c.beginPath();
      c.moveTo(x, top);
      c.lineTo(x, bottom);
      c.stroke();
    };
    if (item.type === 'poke') {
      const p = meta.pokes[item.index];
      line(this.x(p.time), kPoke, 24, this.bottom);
      // On each CPU: the last run of the old text, and the first of the new.
      for (const lane of this.lanes) {
        const v = lane.kind === 'calls' && lane.track.kind === 'cpu' && p.visits.find((o) => o.cpu === lane.track.cpu);
        if (!v) continue;
        const y = lane.y - this.scroll + 24;
        if (v.old !== null) line(this.x(v.old), '#b42318', y, y + lane.height);
        if (v.new !== null) line(this.x(v.new), '#067647', y, y + lane.height);
      }
    } else if (item.type === 'slice' || item.type === 'block' || item.type === 'run') {
      const lane = this.lanes.find((l) => (item.track ? l.track === item.track : l.cpu === item.cpu && l.kind === item.type + 's'));
      if (!lane) return;
      const spans = item.track ? item.track.slices : item.cpu[item.type + 's'];
      const y = lane.y - this.scroll + 27 + (item.track ? spans.depth[item.index] * kRow : 0);
      const x = Math.max(this.x(spans.begin[item.index]), kLabels), end = Math.min(this.x(spans.end[item.index]), kLabels + this.width);
      c.strokeStyle = kInk;
      c.lineWidth = 2;
      c.strokeRect(x, y, Math.max(end - x, 2), kRow - 2);
    }
  }

  drawOverview() {
    const c = this.context(this.overview);
    const width = this.overview.clientWidth, height = this.overview.clientHeight;
    const at = (t) => t / meta.length * width;
    if (!this.whole || this.whole.width !== this.overview.width) this.whole = this.pictureOfAll(width, height);
    c.drawImage(this.whole, 0, 0, width, height);
    c.fillStyle = 'rgba(29,36,48,.1)';
    c.fillRect(0, 0, at(this.begin), height);
    c.fillRect(at(this.end), 0, width - at(this.end), height);
    c.strokeStyle = kInk;
    c.lineWidth = 1;
    c.strokeRect(Math.floor(at(this.begin)) + 0.5, 0.5, Math.max(at(this.end) - at(this.begin), 2), height - 1);
  }
  // Instructions, gaps and changes of text of the whole capture; drawn once.
  pictureOfAll(width, height) {
    const picture = document.createElement('canvas');
    const ratio = window.devicePixelRatio || 1;
    picture.width = this.overview.width;
    picture.height = this.overview.height;
    const c = picture.getContext('2d');
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const at = (t) => t / meta.length * width;
    const cpus = this.data.cpus;
    const each = (height - 12) / Math.max(cpus.length, 1);
    cpus.forEach((cpu, k) => {
      const y = 10 + k * each;
      c.fillStyle = '#84adf5';
      this.density(cpu, width).forEach((d, i) => c.fillRect(i, y + each - d * (each - 2), 1, d * (each - 2)));
      for (const index of cpu.gaps) {
        const g = meta.gaps[index];
        c.fillStyle = kGapColors[g.code.split('-')[1]] || kDim;
        c.fillRect(at(g.begin), y, Math.max(at(g.end) - at(g.begin), 1), each);
      }
    });
    c.fillStyle = kPoke;
    for (const p of meta.pokes) c.fillRect(at(p.time), 1, 1, 7);
    return picture;
  }
  // Instructions of a CPU by part of the capture, the largest being 1.
  density(cpu, parts) {
    const out = new Float64Array(parts);
    const track = this.data.tracks.find((t) => t.kind === 'cpu' && t.cpu === cpu.cpu);
    if (!track) return out;
    const s = track.slices;
    for (let i = 0; i < s.count; ++i) {
      const a = Math.floor(s.begin[i] / meta.length * parts), b = Math.floor(s.end[i] / meta.length * parts);
      const first = Math.max(Math.min(a, parts - 1), 0), last = Math.max(Math.min(b, parts - 1), 0);
      for (let k = first; k <= last; ++k) out[k] += s.self[i] / (last - first + 1);
    }
    const most = out.reduce((m, v) => Math.max(m, v), 1e-9);
    return out.map((v) => Math.sqrt(v / most));  // so that quiet times are seen, too
  }
}
