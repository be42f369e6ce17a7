// perfetto_test.js BUILD SOURCE: the demo's timeline in Perfetto's own trace processor, compared slice by
// slice (names, times, nesting) with other outputs of asof (asof query, Chrome's JSON). Exits with 77
// (skipped) where there is no browser.
'use strict';
const assert = require('assert');
const {execFileSync} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const browser = require('./browser.js');
const {withTrace, withViewer} = require('./perfetto.js');
const {openPage, picture} = require('./page.js');
const {counterUnits} = require('./perfetto_packets.js');

const [build, source] = process.argv.slice(2).map((p) => path.resolve(p));
const asof = path.join(build, 'asof');
const demo = ['tests/data/demo/perf.data', '--symfs', 'tests/data/demo/symfs'];
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'asof-perfetto-'));
const kFunctions = ['kernel', 'module', 'user', 'bpf', 'trampoline', 'slot', 'unnamed', 'untraced'];

function write(file, ...options) {
  const out = path.join(scratch, file);
  execFileSync(asof, ['timeline', ...demo, '-q', '-o', out, ...options], {cwd: source, stdio: ['ignore', 'pipe', 'ignore']});
  return out;
}

// Lines that describe a slice completely, to be compared as sorted lists.
const line = (category, name, begin, length) => `${category} ${name} ${begin} +${length}`;

function ofChrome(file) {
  const calls = [], pokes = [], gaps = [];
  const ns = (us) => BigInt(Math.round(us * 1000));
  for (const e of JSON.parse(fs.readFileSync(file)).traceEvents) {
    if (e.ph === 'M') continue;
    const text = line(e.cat, e.name, ns(e.ts), ns(e.dur || 0));
    if (kFunctions.includes(e.cat)) calls.push(text);
    else if (e.cat === 'poke') pokes.push(text);
    else gaps.push(line(e.cat, `${e.cat} ${e.name}`, ns(e.ts), ns(e.dur || 0)));  // Perfetto has the family in the name
  }
  return {calls: calls.sort(), pokes: pokes.sort(), gaps: gaps.sort()};
}

const rows = (sql, ...options) => execFileSync(asof, ['query', sql, '-i', ...demo, '-q', ...options], {cwd: source,
  stdio: ['ignore', 'pipe', 'ignore'], maxBuffer: 1 << 28}).toString().trimEnd().split('\n').slice(1).map((r) => r.split('\t'));

function ofSqlite() {
  const lines = (sql) => rows(sql).map(([category, name, begin, length]) => line(category, name, begin, length)).sort();
  return {
    calls: lines(`SELECT f.kind, f.name || CASE WHEN f.versions > 1 THEN ' ·v' || c.version ELSE '' END, c.begin, c.end - c.begin
      FROM calls c JOIN functions f ON f.id = c.function`),
    pokes: lines("SELECT 'poke', mechanism || ': ' || action, time, 0 FROM pokes"),
    gaps: lines("SELECT family, family || ' ' || code, begin, end - begin FROM gaps"),
    programs: rows("SELECT name, begin, coalesce(end, 'open') FROM text_lives WHERE kind = 'bpf' ORDER BY begin"),
  };
}

// Perfetto's own counters of errors, but for threads' states that no record tells: see checkThreads.
const errors = (query) => query(`select name, value from stats where severity in ('error', 'data_loss') and value > 0 and name != 'task_state_invalid'`);

async function check(query, want) {
  const lines = async (where) => (await query(
    `select s.category as c, s.name as n, s.ts as t, s.dur as d from slice s join track t on s.track_id = t.id where ${where}`))
    .map((r) => line(r.c, r.n, r.t, r.d)).sort();
  const functions = kFunctions.map((k) => `'${k}'`).join(',');
  // Programs and modules have separate tracks; their slices are not calls.
  const lives = `(t.name glob 'bpf *' or t.name glob 'module *')`;
  assert.deepStrictEqual(await lines(`s.category in (${functions}) and not coalesce(${lives}, 0)`), want.calls);
  assert.deepStrictEqual(await lines(`s.category = 'poke'`), want.pokes);
  assert.deepStrictEqual(await lines(`t.name glob '*health*' and s.category != 'event'`), want.gaps);
  return {
    programs: await query(`select s.name as name, s.ts as ts, s.dur as dur from slice s join track t on s.track_id = t.id where t.name glob 'bpf *' order by ts`),
    // A slice must lie within its parent.
    loose: await query(`select count(*) as n from slice s join slice p on s.parent_id = p.id where s.ts < p.ts or s.ts + s.dur > p.ts + p.dur`),
  };
}

// Straight runs and instructions of a small window, with all their args, compared with the tables; and what
// calls state about the text they ran.
async function checkInstructions() {
  const window = ['--detail', 'insn', '--time', '6.00002,6.00004'];
  const runs = rows(`SELECT b.id, c.address, c.symbol, c.instructions, b.time_lo, b.time_hi, b.confidence, c.source, coalesce(b.to_ip, ''), b.cpu,
    (SELECT group_concat(text, ' ; ') FROM (SELECT text FROM code_instructions i WHERE i.code = b.code ORDER BY number))
    FROM blocks b JOIN code c ON c.id = b.code ORDER BY b.id`, ...window).map((r) => r.join('|'));
  const instructions = rows('SELECT id, block, address, text, bytes FROM instructions ORDER BY id', ...window).map((r) => r.join('|'));
  const badges = rows(`SELECT f.name || ' ·v' || c.version, c.source, c.confidence, c.version, f.versions, c.id FROM calls c JOIN functions f
    ON f.id = c.function WHERE f.versions > 1 ORDER BY c.id`, ...window).map((r) => r.join('|'));
  assert(runs.length > 2000 && instructions.length > 5000 && badges.length > 50);
  await withTrace(write('instructions.pftrace', ...window), async (query) => {
    const arg = (name, table = 's') => `extract_arg(${table}.arg_set_id, 'debug.${name}')`;
    const text = (v) => v === null ? '' : String(v);
    // Addresses are text, because pointers are cut to 32 bits in a browser; in SQL they are signed.
    const address = (v) => v === null ? '' : BigInt.asIntN(64, BigInt(v));
    const got = await query(`select ${arg('run')} as run, ${arg('address')} as address, s.name as name, ${arg('instructions')} as n, ${arg('time_lo')} as lo,
      ${arg('time_hi')} as hi, ${arg('confidence')} as sure, ${arg('source')} as source, ${arg('branch to')} as target, ${arg('disassembly')} as code,
      t.name as track, s.ts as ts, s.dur as dur from slice s join track t on s.track_id = t.id where s.category = 'run' order by run`);
    assert.deepStrictEqual(got.map((r) => [r.run, address(r.address), r.name, r.n, r.lo, r.hi, r.sure, r.source, address(r.target),
      r.track.match(/^CPU (\d+) instructions$/)[1], r.code.replaceAll('\n', ' ; ')].map(text).join('|')), runs);
    // Drawn within the bounds, without overlap on a CPU.
    const end = new Map();
    for (const r of got) {
      assert(r.ts >= r.lo && r.ts + r.dur <= r.hi, `run ${r.run}`);
      assert(r.ts >= (end.get(r.track) || 0n), `run ${r.run}`);
      end.set(r.track, r.ts + r.dur);
    }
    const single = await query(`select ${arg('instruction')} as id, ${arg('run', 'p')} as run, ${arg('address')} as address, s.name as name, ${arg('bytes')} as bytes,
      s.ts < p.ts or s.ts + s.dur > p.ts + p.dur as outside from slice s join slice p on p.id = s.parent_id where s.category = 'instruction' order by id`);
    assert.deepStrictEqual(single.map((r) => [r.id, r.run, address(r.address), r.name, r.bytes].map(text).join('|')), instructions);
    assert.strictEqual(single.filter((r) => r.outside !== 0n).length, 0);
    // The origin of a call's text, how certain it is, and which version it was.
    const marked = await query(`select s.name as name, ${arg('source')} as source, ${arg('confidence')} as sure, ${arg('version')} as version,
      ${arg('versions')} as versions, ${arg('slice')} as slice from slice s where s.name glob '* ·v[0-9]*' and s.category != 'run' order by slice`);
    assert.deepStrictEqual(marked.map((r) => [r.name, r.source, r.sure, r.version, r.versions, r.slice].map(text).join('|')), badges);
    const calls = kFunctions.filter((k) => k !== 'untraced').map((k) => `'${k}'`).join(',');
    const silent = await query(`select count(*) as n from slice s join track t on s.track_id = t.id where s.category in (${calls}) and not
      coalesce(t.name glob 'bpf *' or t.name glob 'module *', 0) and (${arg('source')} is null or ${arg('confidence')} is null)`);
    assert.strictEqual(silent[0].n, 0n);
    // Nothing outside the window, and what was cut is marked.
    const span = await query(`select min(s.ts) as a, max(s.ts + s.dur) as b from slice s`);
    assert(span[0].a >= 6000020000n && span[0].b <= 6000040000n);
    const clipped = await query(`select count(*) as n from slice s where ${arg('flags')} glob '*clipped-*'`);
    assert(clipped[0].n > 4n);
    const copies = await query(`select s.name as name, ${arg('not after')} as t from slice s where s.category = 'snapshot'`);
    assert.deepStrictEqual(copies.map((r) => r.name), []);  // they were made before the window
    assert.deepStrictEqual(await errors(query), []);
  });
  console.log(`instructions.pftrace: ${runs.length} runs, ${instructions.length} instructions agree`);
}

// Scheduling is that of the table of runs, and between two runs a thread's state is unknown, not guessed.
async function checkThreads(query) {
  const runs = rows('SELECT cpu, tid, begin, end FROM runs ORDER BY cpu, begin').map((r) => r.join(' '));
  const sched = await query(`select cpu, tid, ts, dur, end_state as state from sched join thread using(utid) order by cpu, ts`);
  assert(runs.length > 40);
  assert.deepStrictEqual(sched.map((r) => [r.cpu, r.tid, r.ts, r.ts + r.dur].join(' ')), runs);
  const states = await query(`select state, count(*) as n from thread_state where coalesce(state, '') != 'Running' group by state`);
  assert.deepStrictEqual(states.map((r) => r.state), [null]);
  const unknown = await query(`select value from stats where name = 'task_state_invalid'`);
  assert.strictEqual(unknown[0].value, states[0].n);
  const names = await query(`select distinct t.name as thread, p.pid as pid from sched join thread t using(utid) join process p using(upid)`);
  assert.deepStrictEqual(names.map((r) => `${r.thread} ${r.pid}`).sort(), [...new Set(rows("SELECT comm, pid FROM runs WHERE tid > 0").map((r) => r.join(' ')))].sort());
}

// An arrow from each CPU's last old text over the change to its first new; the times are those of the tables.
async function checkFlows(query) {
  const want = rows(`SELECT p.id, v.cpu, coalesce(v.last_old, ''), p.time, coalesce(v.first_new, '') FROM poke_visits v JOIN pokes p ON p.id = v.poke`);
  const arrows = [];
  for (const [poke, cpu, ...times] of want) {
    const steps = [[`CPU ${cpu} text`, times[0]], ['pokes', times[1]], [`CPU ${cpu} text`, times[2]]].filter(([, t]) => t !== '')
      .sort((a, b) => (BigInt(a[1]) < BigInt(b[1]) ? -1 : 1));
    for (let i = 1; i < steps.length; ++i) arrows.push([poke, ...steps[i - 1], ...steps[i]].join('|'));
  }
  assert(arrows.length >= 40);
  const poke = (table) => `extract_arg(${table}.arg_set_id, 'debug.poke')`;
  const got = await query(`select ${poke('a')} as poke, ${poke('b')} as other, s.name as from_track, a.ts as from_ts, t.name as to_track, b.ts as to_ts
    from flow f join slice a on a.id = f.slice_out join track s on s.id = a.track_id join slice b on b.id = f.slice_in join track t on t.id = b.track_id`);
  for (const r of got) assert.strictEqual(r.poke, r.other);
  assert.deepStrictEqual(got.map((r) => [r.poke, r.from_track, r.from_ts, r.to_track, r.to_ts].join('|')).sort(), arrows.sort());
  return arrows.length;
}

// The kernel, and units of counters: in the packets, as the package's version does not keep them.
async function checkMachine(query, file) {
  const system = await query(`select name, str_value as value from metadata where name glob 'system_*' and str_value is not null order by name`);
  assert.deepStrictEqual(system.map((r) => `${r.name} ${r.value}`), ['system_machine x86_64', 'system_name Linux', 'system_release 6.1.0-demo']);
  const counters = (await query('select distinct name from counter_track order by name')).map((r) => r.name);
  assert.deepStrictEqual(counterUnits(fs.readFileSync(file)), counters.map((name) => [name,
    name === 'text version' ? 'changes' : name.startsWith('decode coverage') ? '%' : '1/us']));
}

// Without a clock, what Perfetto shows as time is said to be instructions.
async function checkNoTime() {
  const input = path.join(build, '../shared/corpus/griffin-hello/bundle.json');
  if (!fs.existsSync(input)) return console.log('no time: SKIPPED, the corpus is not here');
  const out = path.join(scratch, 'notime.pftrace');
  execFileSync(asof, ['timeline', input, '-q', '-o', out], {stdio: ['ignore', 'pipe', 'ignore']});
  await withTrace(out, async (query) => {
    const unit = await query(`select s.ts, s.name as name, (select min(ts) from slice) as first, s.ts as at from slice s where s.category = 'unit'`);
    assert.deepStrictEqual(unit.map((r) => [r.name, r.at === r.first]), [['no time in this capture: 1 ns stands for 1 instruction', true]]);
  });
}

// Perfetto's viewer draws all tracks, and shows the arrows of a change that is selected.
async function checkViewer(file) {
  let change;
  await withTrace(file, async (query) => {
    change = (await query(`select s.id as id, s.track_id as track, (select count(*) from flow f where f.slice_in = s.id or f.slice_out = s.id) as flows
      from slice s where s.category = 'poke' limit 1`))[0];
  });
  await withViewer(file, async (page) => {
    const names = await page.evaluate(() => Object.values(globals.state.tracks).map((t) => t.name));
    for (const name of ['CPU 0 calls', 'CPU 1 calls', 'CPU 0 text', 'CPU 1 health', 'pokes', 'snapshots', 'Cpu 0', 'Cpu 1'])
      assert(names.includes(name), `${name} is not in ${names}`);
    const id = await page.evaluate(([id, track]) => {
      const found = Object.values(globals.state.tracks).find((t) => (t.config.trackIds || []).includes(track));
      globals.dispatch(Actions.selectChromeSlice({id, trackId: found.id, table: 'slice'}));
      return found.name;
    }, [Number(change.id), Number(change.track)]);
    assert.strictEqual(id, 'pokes');
    await page.waitForFunction((n) => globals.connectedFlows.length === n, Number(change.flows), {timeout: 30000});
    await page.waitForTimeout(1000);
    await page.screenshot({path: path.join(build, 'perfetto.png')});
  }, {width: 1400, height: 900});
}

// For docs/html-view.md: both viewers with the same capture, at the sizes of a window and of a phone.
async function picturesSideBySide() {
  const html = write('demo.html');
  for (const [name, size] of [['window', {width: 1400, height: 900}], ['phone', {width: 390, height: 844}]]) {
    const {page, end} = await openPage(html, {size});
    await picture(page, path.join(build, `beside-asof-${name}.png`));
    await end();
    await withViewer(path.join(scratch, 'demo.pftrace'), async (viewer) => {
      await viewer.waitForTimeout(1000);
      await viewer.screenshot({path: path.join(build, `beside-perfetto-${name}.png`)});
    }, size);
  }
}

async function main() {
  const want = ofChrome(write('demo.json'));
  assert(want.calls.length > 9000);
  assert.strictEqual(want.pokes.length, 10);
  assert.strictEqual(want.gaps.length, 1);
  const {programs: lives, ...tables} = ofSqlite();
  assert.deepStrictEqual(tables, want);
  for (const file of ['demo.pftrace', 'demo.pftrace.gz']) {
    const complaints = await withTrace(write(file), async (query) => {
      const {programs, loose} = await check(query, want);
      assert.deepStrictEqual(programs.map((p) => p.name.replace(/^bpf_prog_[0-9a-f]+_/, '')), ['count_packets', 'drop_odd']);
      assert.deepStrictEqual(programs.map((p) => [p.name, String(p.ts)]), lives.map(([name, begin]) => [name, begin]));
      assert.strictEqual(loose[0].n, 0n);
      if (file.endsWith('.gz')) return;
      await checkThreads(query);
      console.log(`${file}: ${await checkFlows(query)} arrows of changes agree`);
      await checkMachine(query, path.join(scratch, file));
      assert.deepStrictEqual(await query(`select name from slice where category = 'unit'`), []);
      assert.deepStrictEqual((await query(`select name from slice where category = 'snapshot'`)).map((r) => r.name), ['kcore']);
      // Perfetto's own error counters: nothing may be left out.
      assert.deepStrictEqual(await errors(query), []);
    });
    assert.deepStrictEqual(complaints.filter((c) => !c.includes('Loading trace')), []);
    console.log(`${file}: ${want.calls.length} calls, ${want.pokes.length} changes of text, ${want.gaps.length} gap, 2 BPF programs agree`);
  }
  await checkInstructions();
  await checkNoTime();
  await checkViewer(path.join(scratch, 'demo.pftrace'));
  await picturesSideBySide();
}

browser.runTests(main, scratch, "Perfetto's trace processor");
