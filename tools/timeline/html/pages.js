// Pages of the panel about many things: a range, what a search found, the capture.

class Pages extends Panel {
  range({begin, end}) {
    const sums = this.view.sums(begin, end);
    this.clear('range');
    this.table([['from', clockText(begin)], ['to', clockText(end)], ['length', spanText(end - begin)],
      ['changes of text', grouped(sums.pokes)], ['gaps', grouped(sums.gaps)]]);
    this.heading('by ' + (this.view.data.counted.some((t) => t.kind === 'cpu') ? 'CPU' : 'thread'));
    const time = hasTime() ? ['in calls'] : [];
    this.table(sums.tracks.map((t) => [t.name, ...(hasTime() ? [spanText(t.time)] : []), grouped(t.calls), boundsText(t.least, t.most)]),
               ['', ...time, 'calls', 'instructions']);
    if (sums.tracks.some((t) => t.least !== t.most)) {
      this.text('Calls are counted where they begin. Instructions: those of calls that lie in the range, to those of all that reach into it.', 'dim');
    }
    this.heading('most of it');
    const best = [...sums.functions.entries()].sort((a, b) => hasTime() ? b[1].time - a[1].time : b[1].least - a[1].least).slice(0, 8);
    this.table(best.map(([id, f]) => [button(meta.functions[id].name, () => this.view.search(meta.functions[id].name, true), 'link'),
      hasTime() ? spanText(f.time) : boundsText(f.least, f.most)]), ['', hasTime() ? 'own time' : 'own instructions']);
    this.link('all functions', () => this.view.drawer.show('functions'));
    this.link('flame graph', () => this.view.drawer.show('flames'));
    this.link('zoom to it', () => this.view.fit([begin, end]));
    this.link('no range', () => this.view.setRange(null));
  }

  matches({text, functions, calls, lives, pokes}) {
    this.clear(`“${text}”`);
    this.text(`${plural(calls.count, 'call', 'calls')} of ${plural(functions.length, 'function', 'functions')}`, 'dim');
    if (lives.length) this.heading('programs and modules');
    this.list(lives.length, 20, (i) => this.link(lives[i].name, () => this.view.select({type: 'life', index: lives[i].index}, true)));
    if (pokes.length) this.heading('changes of text');
    this.list(pokes.length, 20, (i) => this.link(`${clockText(meta.pokes[pokes[i]].time)}  ${meta.pokes[pokes[i]].symbol}  ${meta.pokes[pokes[i]].action}`,
                                                () => this.view.select({type: 'poke', index: pokes[i]}, true)));
    if (functions.length > 1) {
      this.heading('functions');
      this.list(functions.length, 50, (i) => this.link(`${functions[i].name}  × ${grouped(functions[i].calls)}`,
                                                       () => this.view.search(functions[i].name, true)));
    }
    if (calls.count) this.heading('calls');
    this.list(calls.count, 100, (i) => {
      const item = calls.at(i), s = item.track.slices;
      const name = functions.length > 1 ? `  ${meta.functions[s.name[item.index]].name}` : '';
      const length = hasTime() ? spanText(s.end[item.index] - s.begin[item.index]) : spanText(s.instructions[item.index]);
      this.link(`${clockText(s.begin[item.index])}  ${item.track.name}${name}  ${length}`, () => this.view.select(item, true));
    });
  }

  about() {
    this.clear(meta.title);
    this.table(meta.about);
    this.heading('in this file');
    for (const line of meta.contents) this.text(line);
    this.heading('keys');
    this.table([
      ['w s', 'zoom in, out (also Ctrl + wheel, two fingers)'], ['a d', 'left, right (also Shift + wheel, dragging)'],
      ['click', 'what is this'], ['arrows', 'to the caller, a callee, the call before, after'], ['PgUp PgDn', 'to another CPU or thread'],
      ['f', 'zoom to what is selected'], ['Shift + drag', 'a range, for sums (also dragging on the axis)'],
      ['r', 'the range is what is in view'], ['t g', 'functions, flame graph of the range'],
      ['/', 'search; Enter and Shift + Enter: next, previous'], ['[ ]', 'previous, next change of text'],
      ['{ }', 'previous, next change that a CPU ran'], ['0', 'whole capture'], ['b', 'dark, light'], ['Esc', 'no search, no range'], ['?', 'this page'],
    ]);
    this.heading('to read it');
    this.text('Between two instants that the trace tells, calls are in the right order, but drawn evenly by their instructions; ' +
              'with cycle counts (CYC) they can have run a little before the first. A name with ·v2 ran the second version of its text. Dashed ends: where a call began or ' +
              'ended was not seen. Striped: flow inside is missing. Click a group on the left to close or open it, “calls” to make its rows low. ' +
              'The address of this page in the browser leads back to what is shown.');
  }
}
