// The part of the address after '#': what is shown, so that a link leads back to it.
// #time=A,B (as asof's --time; instructions=A,B where there is no time), then what is selected: poke=N, gap=N,
// call=TRACK,N; range=A,B; find=TEXT or function=NAME; show=functions or flames.

class Place {
  constructor(view) {
    this.view = view;
    view.settled = () => this.note();
    addEventListener('hashchange', () => {
      if (location.hash !== this.written) this.open();
    });
  }

  // Seconds of perf's clock, exact to a part of a nanosecond.
  static text(t) {
    if (!hasTime()) return String(t);
    const part = t - Math.floor(t);
    return clockText(t) + (part ? String(part).slice(2) : '');
  }
  static time(text) {
    if (!hasTime()) return Number(text);
    const m = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
    if (!m) return NaN;
    const digits = m[3] || '';
    const ns = BigInt(m[2]) * 1000000000n + BigInt(digits.slice(0, 9).padEnd(9, '0'));
    return Number((m[1] ? -ns : ns) - BigInt(meta.begin)) + Number('0.' + (digits.slice(9) || '0'));
  }
  static span(text) {
    const [a, b] = (text || '').split(',').map((t) => Place.time(t));
    return b > a || b === a ? [a, b] : null;
  }

  get hash() {
    const view = this.view, item = view.selected, parts = new URLSearchParams();
    const round = (t) => Math.round(t * meta.unit) / meta.unit;
    const span = (a, b) => `${Place.text(round(a))},${Place.text(round(b))}`;
    if (view.wantEnd - view.wantBegin < meta.length) parts.set(hasTime() ? 'time' : 'instructions', span(view.wantBegin, view.wantEnd));
    if (view.range) parts.set('range', span(...view.range));
    const search = document.getElementById('search').value;
    if (view.wanted) parts.set(view.wholeName ? 'function' : 'find', search);
    if (item && item.type === 'poke') parts.set('poke', meta.pokes[item.index].number);
    if (item && item.type === 'gap') parts.set('gap', item.index);
    if (item && item.type === 'slice') parts.set('call', `${item.track.id},${item.index}`);
    if (view.drawer.shown) parts.set('show', view.drawer.shown);
    const text = parts.toString().replaceAll('%2C', ',');
    return text ? '#' + text : '';
  }
  // Not at every step of a movement: browsers count.
  note() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.written = this.hash;
      if (this.written !== location.hash) history.replaceState(null, '', this.written || location.href.split('#')[0]);
    }, 300);
  }

  open() {
    const parts = new URLSearchParams(location.hash.slice(1)), view = this.view;
    const range = Place.span(parts.get('range'));
    if (range) view.setRange(range);
    for (const key of ['find', 'function']) if (parts.get(key)) view.search(parts.get(key), key === 'function');
    const item = this.item(parts);
    if (item) view.select(item, true);
    const span = Place.span(parts.get(hasTime() ? 'time' : 'instructions'));
    if (span) view.go(...span, true);
    if (['functions', 'flames'].includes(parts.get('show'))) view.drawer.show(parts.get('show'));
  }
  item(parts) {
    const number = (key) => parts.has(key) ? Number(parts.get(key)) : -1;
    const poke = meta.pokes.findIndex((p) => p.number === number('poke'));
    if (poke >= 0) return {type: 'poke', index: poke};
    if (meta.gaps[number('gap')]) return {type: 'gap', index: number('gap')};
    const [id, index] = (parts.get('call') || '').split(',').map(Number);
    const track = this.view.data.tracks.find((t) => t.id === id);
    return track && index >= 0 && index < track.slices.count ? {type: 'slice', track, index} : null;
  }
}
