// perfetto_test.js BUILD SOURCE: the demo's timeline in Perfetto's own trace processor. What it reads there is what other
// outputs of asof (asof query, Chrome's JSON) say, slice by slice: names, times, nesting. Ends with 77 (skipped) where there is no browser.
'use strict';
const assert = require('assert');
const {execFileSync} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const browser = require('./browser.js');
const {withTrace} = require('./perfetto.js');

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

// Lines that say all of a slice: to be compared as sorted lists.
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

function ofSqlite() {
  const rows = (sql) => execFileSync(asof, ['query', sql, '-i', ...demo, '-q'], {cwd: source, stdio: ['ignore', 'pipe', 'ignore'],
    maxBuffer: 1 << 28}).toString().trimEnd().split('\n').slice(1).map((r) => r.split('\t'));
  const lines = (sql) => rows(sql).map(([category, name, begin, length]) => line(category, name, begin, length)).sort();
  return {
    calls: lines(`SELECT f.kind, f.name || CASE WHEN f.versions > 1 THEN ' ·v' || c.version ELSE '' END, c.begin, c.end - c.begin
      FROM calls c JOIN functions f ON f.id = c.function`),
    pokes: lines("SELECT 'poke', mechanism || ': ' || action, time, 0 FROM pokes"),
    gaps: lines("SELECT family, family || ' ' || code, begin, end - begin FROM gaps"),
    programs: rows("SELECT name, begin, coalesce(end, 'open') FROM text_lives WHERE kind = 'bpf' ORDER BY begin"),
  };
}

async function check(query, want) {
  const lines = async (where) => (await query(
    `select s.category as c, s.name as n, s.ts as t, s.dur as d from slice s join track t on s.track_id = t.id where ${where}`))
    .map((r) => line(r.c, r.n, r.t, r.d)).sort();
  const functions = kFunctions.map((k) => `'${k}'`).join(',');
  // Programs and modules have tracks of their own; their slices are no calls.
  const lives = `(t.name glob 'bpf *' or t.name glob 'module *')`;
  assert.deepStrictEqual(await lines(`s.category in (${functions}) and not coalesce(${lives}, 0)`), want.calls);
  assert.deepStrictEqual(await lines(`s.category = 'poke'`), want.pokes);
  assert.deepStrictEqual(await lines(`t.name glob '*health*' and s.category != 'event'`), want.gaps);
  return {
    programs: await query(`select s.name as name, s.ts as ts, s.dur as dur from slice s join track t on s.track_id = t.id where t.name glob 'bpf *' order by ts`),
    // A slice lies within the one around it.
    loose: await query(`select count(*) as n from slice s join slice p on s.parent_id = p.id where s.ts < p.ts or s.ts + s.dur > p.ts + p.dur`),
  };
}

async function main() {
  if (!browser.playwright() || !browser.executable) {
    console.log("SKIPPED: Perfetto's trace processor needs node, Chromium and the packages of tests/browser (scripts/dev.sh test_deps)");
    process.exit(77);
  }
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
      // What Perfetto itself complains of: nothing may be left out.
      const errors = await query(`select name, value from stats where severity in ('error', 'data_loss') and value > 0`);
      assert.deepStrictEqual(errors, []);
    });
    assert.deepStrictEqual(complaints.filter((c) => !c.includes('Loading trace')), []);
    console.log(`${file}: ${want.calls.length} calls, ${want.pokes.length} changes of text, ${want.gaps.length} gap, 2 BPF programs agree`);
  }
}

main().catch((e) => {
  console.error(e);
  process.exitCode = 1;
}).finally(() => fs.rmSync(scratch, {recursive: true, force: true}));
