// Draws the lanes. Everything is drawn anew for each picture, from sorted rows by binary search, so that its cost grows
// with pixels and not with the capture.

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
  draw(c, top, height) {
    if (this.empty) return;
    this.context.putImageData(this.picture, 0, 0);
    c.imageSmoothingEnabled = false;
    c.drawImage(this.canvas, kLabels, top, this.canvas.width, height);
  }
}

class Picture extends Lanes {
  // Fills [t0, t1] in a row, with text when there is room; at least a pixel.
  box(t0, t1, y, height, color, text) {
    const c = this.c;
    const x0 = Math.max(this.x(t0), kLabels - 2), x1 = Math.min(this.x(t1), kLabels + this.width + 2);
    const width = Math.max(x1 - x0, 1);
    c.fillStyle = color;
    c.fillRect(x0, y, width > 3 ? width - 0.6 : width, height);
    if (width > 26 && height > 9 && text) this.label(text, x0, width, y + height / 2);
    return [x0, width];
  }
  label(text, x, width, y) {
    const room = Math.floor((width - 6) / kLetter);
    this.c.fillStyle = theme.ink;
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
    const s = lane.track.slices;
    const gap = lane.row === kRow ? 1.5 : 0.5;
    for (let depth = 0; depth < Math.min(lane.rows, s.rows.length); ++depth) {
      const top = y + 3 + depth * lane.row;
      if (top + lane.row < kTop || top > this.bottom) continue;
      this.thin.start(this.width);
      this.eachVisible(s, s.rows[depth], (i, tiny) => {
        const found = this.wanted && this.wanted.has(s.name[i]);
        if (tiny) this.thin.put(this.x(s.begin[i]) - kLabels, found ? kFoundPixel : this.pixels[s.name[i]], !this.wanted || found);
        else this.call(s, i, top, lane.row - gap, found);
      });
      this.thin.draw(this.c, top, lane.row - gap);
    }
  }
  call(s, i, top, height, found) {
    const c = this.c;
    const name = s.name[i];
    const kind = meta.kinds[s.kind[i]];
    c.globalAlpha = this.wanted && !found ? 0.3 : 1;
    const [x, width] = this.box(s.begin[i], s.end[i], top, height, this.colors[name], functionName(name, kind.version));
    if (kind.gap && width > 3) this.stripes(x, width, top, height);
    if (kind.open && width > 6) this.openEnds(x, width, top, height, kind);
    if (found) {
      c.strokeStyle = kFound;
      c.lineWidth = Math.min(2, height / 2);
      c.strokeRect(x + 1, top + 1, Math.max(width - 2, 1), height - 2);
    }
    c.globalAlpha = 1;
  }
  stripes(x, width, top, height) {
    const c = this.c;
    c.save();
    c.beginPath();
    c.rect(x, top, width, height);
    c.clip();
    c.strokeStyle = theme.stripe;
    c.lineWidth = 2;
    c.beginPath();
    for (let k = Math.floor((x - kRow) / 7) * 7; k < x + width; k += 7) {
      c.moveTo(k, top + kRow);
      c.lineTo(k + kRow, top);
    }
    c.stroke();
    c.restore();
  }
  openEnds(x, width, top, height, kind) {
    const c = this.c;
    c.strokeStyle = theme.dim;
    c.lineWidth = 2;
    c.setLineDash([2, 2]);
    c.beginPath();
    if (kind.open & 1) {
      c.moveTo(x + 1, top);
      c.lineTo(x + 1, top + height);
    }
    if (kind.open & 2) {
      c.moveTo(x + width - 1.5, top);
      c.lineTo(x + width - 1.5, top + height);
    }
    c.stroke();
    c.setLineDash([]);
  }

  runs(lane, y) {
    const {runs} = lane.cpu;
    this.eachVisible(runs, runs.rows[0], (i, tiny) => {
      const t = meta.threads[runs.what[i]];
      this.box(runs.begin[i], runs.end[i], y + 2, kRow, t.idle ? theme.idle : threadColor(t.tid), tiny ? '' : t.name);
    });
  }

  blocks(lane, y) {
    const {cpu} = lane;
    const length = this.end - this.begin;
    this.eachVisible(cpu.blocks, cpu.blocks.rows[0], (i, tiny) => this.block(cpu.blocks, i, y + 3, tiny));
    const covered = cpu.blocks.count > 0 && meta.windows.some(([a, b]) => a < this.end && b > this.begin);
    if (covered || length > meta.closeUp) return;
    // Shown where instructions would be expected, with the command that gets them.
    this.c.fillStyle = theme.dim;
    this.c.fillText('not in this file: click', kLabels + 6, y + 11);
    const range = hasTime() ? ` --time ${clockText(Math.max(this.begin, 0))},${clockText(Math.max(this.end, 0))}` : '';
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
    this.c.fillStyle = theme.band;
    this.c.fillRect(0, y, kLabels + this.width, lane.height - 2);
  }
}
