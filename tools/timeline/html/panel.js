// The panel on the right: everything about one thing. Names come from untrusted files, so all text
// goes through textContent.

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function grouped(n) { return Math.round(n).toLocaleString('en').replaceAll(',', ' '); }

// perf's seconds of a time after the beginning.
function clockText(t) {
  if (meta.clock !== 'ns') return `instruction ${grouped(t)}`;
  const ns = BigInt(meta.begin) + BigInt(Math.floor(t));
  const sign = ns < 0n ? '-' : '';
  const size = ns < 0n ? -ns : ns;
  return `${sign}${size / 1000000000n}.${String(size % 1000000000n).padStart(9, '0')}`;
}

function spanText(t) {
  if (meta.clock !== 'ns') return `${grouped(t)} instructions`;
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
    if (t >= size) return `${(t / size).toPrecision(4)} ${unit}`;
  }
  return `${t >= 100 ? t.toFixed(0) : t.toPrecision(3)} ns`;
}

function functionName(id, version) {
  const f = meta.functions[id];
  return f.changes && version ? `${f.name} ·v${version}` : f.name;
}

class Panel {
  constructor(node, view) {
    this.node = node;
    this.view = view;
  }

  clear(title) {
    this.node.replaceChildren(element('h2', title));
    this.node.scrollTop = 0;
  }
  heading(text) { this.node.append(element('h3', text)); }
  text(text, className) { this.node.append(element('p', text, className)); }
  code(text, className) { this.node.append(element('div', text, 'code ' + (className || ''))); }
  link(text, action) {
    const b = element('button', text, 'link');
    b.onclick = action;
    const p = element('p');
    p.append(b);
    this.node.append(p);
  }
  table(rows, head) {
    const table = element('table');
    if (head) {
      const tr = element('tr');
      for (const cell of head) tr.append(element('th', cell));
      table.append(tr);
    }
    for (const row of rows) {
      const tr = element('tr');
      row.forEach((cell, i) => tr.append(element(i === 0 && !head ? 'th' : 'td', cell)));
      table.append(tr);
    }
    this.node.append(table);
  }

  // The instants in the trace before and after a drawn time. After a CYC packet code can have run before the first.
  interval(cpu, t) {
    const points = cpu && cpu.points;
    if (!points || points.length === 0) return clockText(t);
    let low = 0, high = points.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle] > t) high = middle;
      else low = middle + 1;
    }
    if (low === 0 || low === points.length || points[low] - points[low - 1] < 1) return clockText(t);
    if (points[low - 1] === t) return `${clockText(t)} or up to ${spanText(points[low] - t)} later`;
    return `${clockText(points[low - 1])} .. ${clockText(points[low])}`;
  }

  show(item) {
    this[item.type](item);
  }

  slice({track, index}) {
    const s = track.slices;
    const f = meta.functions[s.name[index]];
    const kind = meta.kinds[s.kind[index]];
    this.clear(functionName(s.name[index], kind.version));
    this.text(`${f.kind}${f.dso ? ', ' + f.dso : ''}`, 'dim');
    const cpu = this.view.data.cpus.find((c) => c.cpu === kind.cpu);
    const rows = [
      ['begins', this.interval(cpu, s.begin[index])], ['lasts', '≈ ' + spanText(s.end[index] - s.begin[index])],
      ['instructions', `${grouped(s.instructions[index])}, ${grouped(s.self[index])} of them its own`],
      ['on', `${track.name}${track.kind === 'thread' && kind.cpu >= 0 ? ', CPU ' + kind.cpu : ''}`],
    ];
    if (kind.flags) rows.push(['how', kind.flags]);
    rows.push(['address', f.range || '']);
    rows.push(['text', `${f.changes ? `version ${kind.version} of ${f.changes.length + 1}, ` : ''}${kind.origin}`]);
    rows.push(['sure', kind.confidence]);
    if (f.line) rows.push(['begins at', f.line]);
    if (f.bpf) rows.push(['program', f.bpf]);
    if (s.folded.has(index)) rows.push(['folded', `${grouped(s.folded.get(index))} short calls in it are not in this file`]);
    this.table(rows);
    const parent = this.view.parentOf(track, index);
    if (parent >= 0) {
      this.heading('called by');
      this.link(functionName(s.name[parent], meta.kinds[s.kind[parent]].version),
                () => this.view.select({type: 'slice', track, index: parent}, true));
    }
    if (f.changes) {
      this.heading('its text changed');
      for (const [t, poke] of f.changes.slice(0, 50)) {
        if (poke >= 0) this.link(clockText(t), () => this.view.select({type: 'poke', index: poke}, true));
        else this.text(clockText(t));
      }
      if (f.changes.length > 50) this.text(`and ${f.changes.length - 50} times more`, 'dim');
    }
    this.heading('all calls of it');
    this.link('search', () => this.view.search(f.name));
  }

  poke({index}) {
    const p = meta.pokes[index];
    this.clear(`${p.mechanism}: ${p.action}`);
    this.text(`${p.symbol}  ${p.address}`);
    this.text(`change ${p.number} of the capture's text, recorded at ${clockText(p.time)}`, 'dim');
    if (p.end > p.begin) this.text(`a breakpoint stood there from ${clockText(p.begin)} to ${clockText(p.end)}`, 'dim');
    this.heading('before');
    this.code(p.old, 'change old');
    this.heading('after');
    this.code(p.new, 'change new');
    this.heading('who ran which');
    if (p.visits.length === 0) {
      this.text('no CPU ran code here while it was traced');
    } else {
      this.table(p.visits.map((v) => [
        `CPU ${v.cpu}`, v.old === null ? 'never' : clockText(v.old), v.new === null ? 'never' : clockText(v.new),
        v.breakpoints ? grouped(v.breakpoints) : '',
      ]), ['', 'old until', 'new from', 'breakpoint met']);
    }
    this.heading('other changes here');
    let others = 0;
    meta.pokes.forEach((o, i) => {
      if (i === index || o.address !== p.address || ++others > 50) return;
      this.link(`${clockText(o.time)}  ${o.action}`, () => this.view.select({type: 'poke', index: i}, true));
    });
    if (others === 0) this.text('none');
    if (others > 50) this.text(`and ${others - 50} more`, 'dim');
  }

  gap({index}) {
    const g = meta.gaps[index];
    this.clear(g.code);
    this.text(g.reason);
    const rows = [['where', g.where], ['from', clockText(g.begin)], ['to', clockText(g.end)]];
    if (g.ip) rows.push(['lost at', g.ip]);
    if (g.resume) rows.push(['goes on at', g.resume]);
    if (g.bytes) rows.push(['trace', `${grouped(g.bytes)} bytes passed over, file offset ${g.offset}`]);
    this.table(rows);
    this.code(`asof errors --explain ${g.code}`);
  }

  life({index}) {
    const l = meta.lives[index];
    this.clear(l.name);
    const seen = l.seen && [l.seen[0] === null ? 'the beginning' : clockText(l.seen[0]), l.seen[1] === null ? 'the end' : clockText(l.seen[1])];
    this.table([['what', l.kind], ['address', l.range], ['from', l.begin === null ? 'before the capture' : clockText(l.begin)],
      ['to', l.end === null ? 'still there at the end' : clockText(l.end)], ...(seen ? [['surely there', `from ${seen[0]} to ${seen[1]}`]] : []),
      ...(l.bpf ? [['program', l.bpf]] : [])]);
  }

  run({cpu, index}) {
    const t = meta.threads[cpu.runs.what[index]];
    this.clear(t.name);
    this.table([['process', String(t.pid)], ['thread', String(t.tid)], ['on', cpu.name], ['from', clockText(cpu.runs.begin[index])],
      ['to', clockText(cpu.runs.end[index])]]);
  }

  block({cpu, index}) {
    const b = meta.blocks[cpu.blocks.what[index]];
    this.clear(b.symbol);
    this.text(`${b.lines.length} instructions in a row, ran once`, 'dim');
    this.table([['on', cpu.name], ['when', this.interval(cpu, cpu.blocks.begin[index])], ['text', b.origin]]);
    this.code(b.lines.map((line, i) => b.sources && b.sources[i] ? `${line}  ; ${b.sources[i]}` : line).join('\n'));
  }

  missing() {
    this.clear('instructions');
    this.text('Those of this window are not in this file. To get them:');
    this.code(this.view.command, 'change');
  }

  matches(functions, text) {
    this.clear(`“${text}”`);
    this.text(`${grouped(functions.length)} functions`, 'dim');
    for (const f of functions.slice(0, 200)) {
      this.link(`${f.name}  × ${grouped(f.calls)}`, () => this.view.search(f.name, true));
    }
    if (functions.length > 200) this.text(`and ${functions.length - 200} more`, 'dim');
  }

  about() {
    this.clear(meta.title);
    this.table(meta.about);
    this.heading('in this file');
    for (const line of meta.contents) this.text(line);
    this.heading('keys');
    this.table([
      ['w s', 'closer, farther (also Ctrl + wheel)'], ['a d', 'left, right (also Shift + wheel, dragging)'],
      ['click', 'what is this'], ['f', 'zoom to what is selected'], ['/', 'search; Enter and Shift + Enter: next, previous'],
      ['[ ]', 'previous, next change of text'], ['0', 'whole capture'], ['?', 'this page'],
    ]);
    this.heading('to read it');
    this.text('Between two instants that the trace tells, calls are in the right order, but drawn evenly by their instructions; ' +
              'with cycle counts (CYC) they can have run a little before the first. A name with ·v2 ran the second version of its text. Dashed ends: where a call began or ' +
              'ended was not seen. Striped: flow inside is missing. Click a group on the left to close or open it.');
  }
}
