// Below the lanes: functions of a range as a table, and as a flame graph.

class Drawer {
  constructor(view) {
    this.view = view;
    this.node = document.getElementById('drawer');
    this.shown = null;                         // 'functions', 'flames'
    this.sort = hasTime() ? 'time' : 'least';  // column of the table
    this.weight = hasTime() ? 'time' : 'least';
    this.path = [];                            // of functions that the flame graph was narrowed to
    this.canvas = element('canvas');
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.canvas.onclick = (e) => this.clicked(e);
    this.canvas.onmousemove = (e) => this.pointed(e);
    new ResizeObserver(() => this.shown === 'flames' && this.drawFlames()).observe(this.node);
  }

  show(what) {
    this.shown = what;
    this.node.hidden = what === null;
    for (const [id, tab] of [['table', 'functions'], ['flames', 'flames']]) document.getElementById(id).setAttribute('aria-pressed', tab === what);
    this.refresh();
    this.view.redraw();
  }
  toggle(what) { this.show(this.shown === what ? null : what); }

  refresh() {
    if (this.shown === null) return;
    const [begin, end] = this.view.range || [0, meta.length];
    this.sums = this.view.sums(begin, end);
    const head = element('div', undefined, 'head');
    const body = this.body = element('div', undefined, 'body');
    head.append(element('span', this.view.range ? `${clockText(begin)} to ${clockText(end)}` : 'whole capture', 'dim'));
    if (this.shown === 'flames') this.flameHead(head);
    else body.append(this.functionTable());
    head.append(element('span', undefined, 'grow'), button('close', () => this.show(null)));
    this.node.replaceChildren(head, body);
    if (this.shown === 'flames') {
      body.append(this.canvas);
      this.drawFlames();
    }
  }

  // ---- functions ----

  columns() {
    const time = [['time', 'own time', (f) => spanText(f.time)], ['all', 'time', (f) => spanText(f.all)]];
    return [['calls', 'calls', (f) => grouped(f.calls)], ...(hasTime() ? time : []),
      ['least', 'own instructions', (f) => boundsText(f.least, f.most)], ['allLeast', 'instructions', (f) => boundsText(f.allLeast, f.allMost)]];
  }
  functionTable() {
    const kMost = 500;
    const table = element('table'), columns = this.columns();
    const head = element('tr');
    head.append(element('th', 'function'));
    for (const [key, name] of columns) {
      const th = element('th', undefined, 'number');
      th.setAttribute('aria-sort', key === this.sort ? 'descending' : 'none');
      th.append(button(name + (key === this.sort ? ' ▾' : ''), () => {
        this.sort = key;
        this.refresh();
      }));
      head.append(th);
    }
    table.append(head);
    const most = {least: 'most', allLeast: 'allMost'}[this.sort] || this.sort;
    const rows = [...this.sums.functions].filter(([id]) => !this.view.wanted || this.view.wanted.has(id))
      .sort(([i, a], [k, b]) => b[this.sort] - a[this.sort] || b[most] - a[most] || i - k);
    for (const [id, f] of rows.slice(0, kMost)) {
      const tr = element('tr'), name = element('td');
      name.append(button(meta.functions[id].name, () => this.view.search(meta.functions[id].name, true), 'link'));
      tr.append(name, ...columns.map(([, , text]) => element('td', text(f), 'number')));
      table.append(tr);
    }
    if (rows.length > kMost) table.append(element('caption', `the first ${grouped(kMost)} of ${grouped(rows.length)}; a search narrows them`, 'dim'));
    return table;
  }

  // ---- flame graph ----

  flameHead(head) {
    const weights = [...(hasTime() ? [['time', 'time']] : []), ['least', 'instructions'], ['calls', 'calls']];
    for (const [key, name] of weights) {
      const b = button(name, () => {
        this.weight = key;
        this.refresh();
      });
      b.setAttribute('aria-pressed', key === this.weight);
      head.append(b);
    }
    if (this.path.length) {
      head.append(button('all', () => {
        this.path = [];
        this.refresh();
      }));
    }
    head.append(this.under = element('span', '', 'dim'));
  }
  amount(value) { return this.weight === 'time' ? spanText(value) : plural(value, ...(this.weight === 'calls' ? ['call', 'calls'] : ['instruction', 'instructions'])); }

  // What the graph is narrowed to: as far down as the path is there in this range.
  flameRoot() {
    let node = this.sums.root;
    this.above = [];
    for (const name of this.path) {
      if (!node.children.has(name)) break;
      this.above.push(node);
      node = node.children.get(name);
    }
    return node;
  }
  drawFlames() {
    this.sums.root.weigh(this.weight);
    const root = this.flameRoot();
    this.frames = [];
    const width = Math.max(this.body.clientWidth - 20, 1);
    const place = (node, x, depth, path) => {
      const w = node.value / Math.max(root.value, 1e-9) * width;
      if (w < 0.5) return;
      this.frames.push({node, x, y: depth * kRow, width: w, path});
      let at = x;
      // In order of name, as flame graphs are.
      const children = [...node.children.values()].sort((a, b) => meta.functions[a.name].name < meta.functions[b.name].name ? -1 : 1);
      for (const child of children) {
        place(child, at, depth + 1, [...path, child.name]);
        at += child.value / Math.max(root.value, 1e-9) * width;
      }
    };
    place(root, 0, 0, this.path.slice(0, this.above.length));
    this.canvas.style.width = width + 'px';
    this.canvas.style.height = (this.frames.reduce((m, f) => Math.max(m, f.y), 0) + kRow + 4) + 'px';
    const c = this.view.context(this.canvas);
    c.font = kFont;
    c.textBaseline = 'middle';
    for (const f of this.frames) this.drawFrame(c, f);
    this.canvas.setAttribute('aria-label', `flame graph, ${this.amount(root.value)}; the table of functions has the same sums`);
  }
  drawFrame(c, {node, x, y, width}) {
    const wanted = !this.view.wanted || this.view.wanted.has(node.name);
    c.globalAlpha = wanted || node.name < 0 ? 1 : 0.35;
    c.fillStyle = node.name < 0 ? theme.band : this.view.colors[node.name];
    c.fillRect(x, y, Math.max(width - 0.6, 0.4), kRow - 1);
    const text = node.name < 0 ? 'all' : meta.functions[node.name].name, room = Math.floor((width - 6) / kLetter);
    c.fillStyle = theme.ink;
    if (room > 2) c.fillText(text.length <= room ? text : text.slice(0, room - 1) + '…', x + 3, y + kRow / 2);
    c.globalAlpha = 1;
  }
  frameAt(e) { return this.frames.find((f) => e.offsetX >= f.x && e.offsetX < f.x + f.width && e.offsetY >= f.y && e.offsetY < f.y + kRow); }
  pointed(e) {
    const f = this.frameAt(e);
    const share = f ? ` (${(f.node.value / Math.max(this.sums.root.value, 1e-9) * 100).toFixed(1)} %)` : '';
    this.under.textContent = f ? `${f.node.name < 0 ? 'all' : meta.functions[f.node.name].name}: ${this.amount(f.node.value)}${share}` : '';
  }
  clicked(e) {
    const f = this.frameAt(e);
    if (!f) return;
    // The outermost frame leads back out.
    this.path = f.y === 0 ? this.path.slice(0, -1) : f.path;
    this.refresh();
  }
}
