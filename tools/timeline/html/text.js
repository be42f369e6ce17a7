// Numbers, times and names as text.

function grouped(n) { return Math.round(n).toLocaleString('en').replaceAll(',', '\u00a0'); }
// Spaces within numbers are no place to break a line.
function unbroken(text) { return text.replace(/(\d) (?=\d{3}(?!\d))/g, '$1\u00a0'); }
function plural(n, one, more) { return `${grouped(n)} ${n === 1 ? one : more}`; }

function hasTime() { return meta.clock === 'ns'; }

// perf's seconds of a time after the beginning.
function clockText(t) {
  if (!hasTime()) return `instruction ${grouped(t)}`;
  const ns = BigInt(meta.begin) + BigInt(Math.floor(t));
  const sign = ns < 0n ? '-' : '';
  const size = ns < 0n ? -ns : ns;
  return `${sign}${size / 1000000000n}.${String(size % 1000000000n).padStart(9, '0')}`;
}

function spanText(t) {
  if (!hasTime()) return plural(Math.round(t), 'instruction', 'instructions');
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
    if (t >= size) return `${(t / size).toPrecision(4)} ${unit}`;
  }
  return `${t >= 100 || t === Math.floor(t) ? t.toFixed(0) : t.toPrecision(3)} ns`;
}

// A step of the axis: where there is no time, its corner has the unit.
function stepText(t) {
  if (hasTime()) return '+' + spanText(t);
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (t >= size) return `+${Number((t / size).toPrecision(4))} ${unit}`;
  }
  return `+${Number(t.toPrecision(4))}`;
}

// Two bounds, or the one number that they are.
function boundsText(low, high) { return low === high ? grouped(low) : `${grouped(low)} to ${grouped(high)}`; }

// Cycles and IPC of a function or block, as rows: what is certain, and what may be (report --cycles has the same).
function cycleRows([least, most, fewest, greatest]) {
  const rows = [['core cycles', boundsText(least, most)]];
  if (most === 0) return rows;
  const low = Math.floor(fewest * 100 / most) / 100;
  const high = least === 0 ? null : Math.ceil(greatest * 100 / least) / 100;
  rows.push(['IPC', high === null ? `at least ${low.toFixed(2)}`
    : low === high ? low.toFixed(2) : `${low.toFixed(2)} to ${high.toFixed(2)}`]);
  return rows;
}

function functionName(id, version) {
  const f = meta.functions[id];
  return f.changes && version ? `${f.name} ·v${version}` : f.name;
}

// One line about a thing: under the pointer, in lists, for screen readers.
function describe(item) {
  if (item.type === 'slice') {
    const s = item.track.slices, f = meta.functions[s.name[item.index]];
    return `${functionName(s.name[item.index], meta.kinds[s.kind[item.index]].version)}, ${f.kind}, ` +
      `${hasTime() ? spanText(s.end[item.index] - s.begin[item.index]) + ', ' : ''}` +
      `${plural(s.instructions[item.index], 'instruction', 'instructions')}, ${item.track.name}, depth ${s.depth[item.index]}`;
  }
  if (item.type === 'poke') {
    const p = meta.pokes[item.index];
    return `change ${p.number}, ${p.mechanism}: ${p.action}, ${p.symbol}, at ${clockText(p.time)}`;
  }
  if (item.type === 'gap') return `${meta.gaps[item.index].code}, ${meta.gaps[item.index].where}, ${meta.gaps[item.index].reason}`;
  if (item.type === 'life') return `${meta.lives[item.index].kind} ${meta.lives[item.index].name}`;
  if (item.type === 'run') return meta.threads[item.cpu.runs.what[item.index]].name;
  if (item.type === 'block') return meta.blocks[item.cpu.blocks.what[item.index]].symbol;
  if (item.type === 'range') return `range of ${spanText(item.end - item.begin)} from ${clockText(item.begin)}`;
  return '';
}
