// The panel on the right: everything about one thing. Names come from untrusted files, so all text
// goes through textContent.

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}
function button(text, action, className) {
  const b = element('button', text, className);
  b.onclick = action;
  return b;
}

class PanelText {
  constructor(node, view) {
    this.node = node;
    this.view = view;
  }

  clear(title) {
    this.node.replaceChildren(element('h2', title));
    this.node.scrollTop = 0;
  }
  heading(text) { this.node.append(element('h3', text)); }
  text(text, className) { this.node.append(element('p', unbroken(text), className)); }
  code(text, className) { this.node.append(element('div', text, 'code ' + (className || ''))); }
  link(text, action) {
    const p = element('p');
    p.append(button(text, action, 'link'));
    this.node.append(p);
  }
  // A cell is text, or an element.
  table(rows, head) {
    const table = element('table');
    const line = (cells, tag) => {
      const tr = element('tr');
      cells.forEach((cell, i) => {
        const td = element(tag(i));
        td.append(cell);
        tr.append(td);
      });
      table.append(tr);
    };
    if (head) line(head, () => 'th');
    for (const row of rows) line(row, (i) => i === 0 && !head ? 'th' : 'td');
    this.node.append(table);
  }
  // At most `most` of a long list at a time.
  list(count, most, one) {
    let shown = 0;
    const more = () => {
      for (const end = Math.min(shown + most, count); shown < end; ++shown) one(shown);
      if (shown < count) {
        const p = element('p');
        p.append(button(`${grouped(count - shown)} more`, () => {
          p.remove();
          more();
        }));
        this.node.append(p);
      }
    };
    more();
  }
}

class Panel extends PanelText {
  // The instants in the trace before and after a drawn time. After a CYC packet code can have run before the first.
  interval(cpu, t) {
    const points = cpu && cpu.points;
    if (!points || points.length === 0) return clockText(t);
    const next = pointAfter(points, t);
    if (next === 0 || next === points.length || points[next] - points[next - 1] < 1) return clockText(t);
    if (points[next - 1] === t) return `${clockText(t)} or up to ${spanText(points[next] - t)} later`;
    return `${clockText(points[next - 1])} .. ${clockText(points[next])}`;
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
      ['begins', this.interval(cpu, s.begin[index])],
      ['instructions', `${grouped(s.instructions[index])}, ${grouped(s.self[index])} of them its own`],
      ['on', `${track.name}${track.kind === 'thread' && kind.cpu >= 0 ? ', CPU ' + kind.cpu : ''}`],
    ];
    if (hasTime()) rows.splice(1, 0, ['lasts', '≈ ' + spanText(s.end[index] - s.begin[index])]);
    if (kind.flags) rows.push(['how', kind.flags]);
    rows.push(['address', f.range || '']);
    rows.push(['text', `${f.changes ? `version ${kind.version} of ${f.changes.length + 1}, ` : ''}${kind.origin}`]);
    rows.push(['sure', kind.confidence]);
    if (f.line) rows.push(['begins at', f.line]);
    if (f.bpf) rows.push(['program', f.bpf]);
    if (s.folded.has(index)) rows.push(['folded', `${grouped(s.folded.get(index))} short calls in it are not in this file`]);
    this.table(rows);
    const parent = this.view.parentOf(track, index);
    this.cycles(f, parent >= 0 ? meta.functions[s.name[parent]] : null);
    if (parent >= 0) {
      this.heading('called by');
      this.link(functionName(s.name[parent], meta.kinds[s.kind[parent]].version),
                () => this.view.select({type: 'slice', track, index: parent}, true));
    }
    if (f.changes) {
      this.heading('its text changed');
      this.list(f.changes.length, 50, (i) => {
        const [t, poke] = f.changes[i];
        if (poke >= 0) this.link(clockText(t), () => this.view.select({type: 'poke', index: poke}, true));
        else this.text(clockText(t));
      });
    }
    this.heading('all calls of it');
    this.link('list them', () => this.view.search(f.name, true));
  }

  // Of all executions in the capture, not of this one.
  cycles(f, caller) {
    if (!meta.cycles) return;
    if (f.cycles) {
      this.heading('itself, all times');
      this.table(cycleRows(f.cycles));
    }
    const calls = meta.cycles.calls.filter(([from, to]) => to === f.name && (!caller || from === caller.name));
    if (calls.length === 0) return;
    this.heading('calls of it, with what they call');
    this.list(calls.length, 50, (i) => {
      const [from, , count, least, most] = calls[i];
      this.text(`${from}: ${plural(count, 'call', 'calls')}, ${boundsText(least, most)} core cycles`);
    });
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
        button(`CPU ${v.cpu}`, () => this.view.fit(this.view.visitSpan(p, [v])), 'link'),
        v.old === null ? 'never' : clockText(v.old), v.new === null ? 'never' : clockText(v.new),
        v.breakpoints ? grouped(v.breakpoints) : '',
      ]), ['', 'old until', 'new from', 'breakpoint met']);
      this.link('zoom to the last old and first new of all', () => this.view.fit(this.view.visitSpan(p, p.visits)));
    }
    this.heading('other changes here');
    const others = meta.pokes.map((_, i) => i).filter((i) => i !== index && meta.pokes[i].address === p.address);
    this.list(others.length, 50, (i) => this.link(`${clockText(meta.pokes[others[i]].time)}  ${meta.pokes[others[i]].action}`,
                                                  () => this.view.select({type: 'poke', index: others[i]}, true)));
    if (others.length === 0) this.text('none');
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
  // All of one kind: what a group of lanes has no room for.
  lives({lane}) {
    this.clear(`${lane.name} (${grouped(lane.lives.length)})`);
    this.list(lane.lives.length, 200, (i) => {
      const l = lane.lives[i];
      this.link(`${l.name}  ${l.begin === null ? '' : 'from ' + clockText(l.begin)} ${l.end === null ? '' : 'to ' + clockText(l.end)}`,
                () => this.view.select({type: 'life', index: l.index}, true));
    });
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
    this.text(`${plural(b.lines.length, 'instruction', 'instructions')} in a row, ran once`, 'dim');
    this.table([['on', cpu.name], ['when', this.interval(cpu, cpu.blocks.begin[index])], ['text', b.origin]]);
    if (b.cycles) {
      this.heading('all times that it ran');
      this.table(cycleRows(b.cycles));
    }
    this.code(b.lines.map((line, i) => b.sources && b.sources[i] ? `${line}  ; ${b.sources[i]}` : line).join('\n'));
  }

  missing() {
    this.clear('instructions');
    this.text('Those of this window are not in this file. To get them:');
    this.code(this.view.command, 'change');
  }
}
