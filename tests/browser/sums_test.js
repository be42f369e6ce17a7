// sums_test.js BUILD SOURCE: sums of the HTML view, of the whole capture and of ranges chosen by pointer and keyboard,
// compared with those of `asof query` and `asof stacks`. Exits with 77 (skipped) where there is no browser.
'use strict';
const assert = require('assert');
const {execFileSync} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const browser = require('./browser.js');
const {openPage, settle, panel, press} = require('./page.js');

const [build, source] = process.argv.slice(2).map((p) => path.resolve(p));
const asof = path.join(build, 'asof');
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'asof-sums-'));

const run = (args) => execFileSync(asof, args, {cwd: source, encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'ignore']});
const query = (input, sql, ...options) => run(['query', sql, '-i', ...input, '-q', ...options]).trimEnd().split('\n').slice(1).map((r) => r.split('\t'));

// Of each function, by name: calls that begin in the range, own time in it without gaps, instructions of calls that lie in it and
// of all that reach into it.
function ofTables(input, [a, b]) {
  const overlap = (begin, end) => `max(min(c.end, ${b}, ${end}) - max(c.begin, ${a}, ${begin}), 0)`;
  const inside = `${overlap(a, b)} - coalesce((SELECT sum(${overlap('g.begin', 'g.end')}) FROM gaps g WHERE g.cpu = t.cpu), 0)`;
  const rows = query(input, `WITH part AS (SELECT c.id, c.parent, c.function, c.self_instructions AS own, c.begin, c.end, c.flags, ${inside} AS time
      FROM calls c JOIN tracks t ON t.id = c.track WHERE t.kind = 'cpu' AND c.end >= ${a} AND c.begin <= ${b}),
    below AS (SELECT parent, sum(time) AS time FROM part GROUP BY parent)
    SELECT f.name, sum(p.begin >= ${a} AND p.flags NOT LIKE '%resumed%' AND p.flags NOT LIKE '%began-before%'), sum(p.time - coalesce(below.time, 0)),
      sum(CASE WHEN p.begin >= ${a} AND p.end <= ${b} THEN p.own ELSE 0 END), sum(p.own)
    FROM part p JOIN functions f ON f.id = p.function LEFT JOIN below ON below.parent = p.id GROUP BY f.name ORDER BY f.name`);
  return rows.map(([name, ...numbers]) => [name, ...numbers.map(Number)]);
}

const ofPage = (page, [a, b]) => page.evaluate(([a, b]) => {
  const sums = new Map();
  for (const [id, f] of view.sums(a, b).functions) {
    const of = sums.get(meta.functions[id].name) || [0, 0, 0, 0];
    sums.set(meta.functions[id].name, [of[0] + f.calls, of[1] + f.time, of[2] + f.least, of[3] + f.most]);
  }
  return [...sums.entries()].map(([name, numbers]) => [name, ...numbers]);
}, [a, b]);

const byName = (rows) => rows.sort((x, y) => (x[0] < y[0] ? -1 : 1));
const total = (rows, column) => rows.reduce((n, r) => n + r[column], 0);

async function compare(name, input, shares) {
  const file = path.join(scratch, `${name}.html`);
  run(['timeline', ...input, '--html', file, '--max-slices', '0', '-q']);
  const {page, end} = await openPage(file);
  const begin = BigInt(await page.evaluate(() => meta.begin)), length = await page.evaluate(() => meta.length);
  for (const [from, to] of shares) {
    const range = [Math.floor(length * from), Math.floor(length * to)];
    const asked = range.map((t) => begin + BigInt(t));
    const want = byName(ofTables(input, asked)), got = byName(await ofPage(page, range));
    assert(want.length > 10);
    assert.deepStrictEqual(got, want, `${name} ${range}`);
    // By other ways: with --time, calls are cut at the ends and only instructions within are counted; stacks adds own times up.
    const seconds = asked.map((t) => `${t / 1000000000n}.${String(t % 1000000000n).padStart(9, '0')}`).join(',');
    const [time, exact] = query(input, `SELECT sum(CASE WHEN parent = 0 THEN end - begin ELSE 0 END) - (SELECT coalesce(sum(end - begin), 0) FROM gaps),
      sum(self_instructions) FROM calls c JOIN tracks t ON t.id = c.track WHERE t.kind = 'cpu'`, '--time', seconds)[0].map(Number);
    assert.strictEqual(total(got, 2), time, `${name} ${range}: time in calls`);
    if (from === 0 && to === 1) {
      const stacks = run(['stacks', ...input, '-q']).trim().split('\n').reduce((n, l) => n + Number(l.slice(l.lastIndexOf(' ') + 1)), 0);
      assert.strictEqual(stacks, time, 'own times of stacks');
    }
    assert(total(got, 3) <= exact && exact <= total(got, 4), `${name} ${range}: ${exact} is not within ${total(got, 3)} and ${total(got, 4)}`);
    console.log(`${name} ${seconds}: ${want.length} functions, ${total(got, 1)} calls, ${total(got, 2)} ns, ${total(got, 3)} to ${total(got, 4)} instructions (${exact})`);
  }
  await end();
}

const demo = ['tests/data/demo/perf.data', '--symfs', 'tests/data/demo/symfs'];

// The range is drawn with the pointer; what the panel, the table and the flame graph say of it are the sums.
async function testRange() {
  const file = path.join(scratch, 'demo.html');
  const {page, end} = await openPage(file);
  const box = await page.evaluate(() => {
    const b = view.canvas.getBoundingClientRect();
    return [b.left, b.top];
  });
  await page.mouse.move(box[0] + 400, box[1] + 10);
  await page.mouse.down();
  await page.mouse.move(box[0] + 500, box[1] + 10, {steps: 4});
  await page.mouse.up();
  await settle(page);
  const range = await page.evaluate(() => view.range);
  assert.deepStrictEqual(range, await page.evaluate(([a, b]) => [a, b].map((x) => Math.round(view.time(x))), [400, 500]));
  const want = await page.evaluate(([a, b]) => view.sums(a, b).tracks.map((t) => `${t.name}\t${spanText(t.time)}\t${grouped(t.calls)}\t${boundsText(t.least, t.most)}`), range);
  const text = await panel(page);
  for (const line of want) assert(text.includes(line), `${line} is not in\n${text}`);
  // Shift and dragging in the lanes.
  await page.keyboard.down('Shift');
  await page.mouse.move(box[0] + 300, box[1] + 300);
  await page.mouse.down();
  await page.mouse.move(box[0] + 700, box[1] + 310, {steps: 4});
  await page.mouse.up();
  await page.keyboard.up('Shift');
  await settle(page);
  assert(await page.evaluate(([a]) => view.range[0] < a, range));
  // The table: sorted by its column, and its sums are those of the range.
  await page.keyboard.press('t');
  const table = () => page.evaluate(() => [...document.querySelectorAll('#drawer tr')].slice(1).map((tr) => [...tr.children].map((td) => td.textContent)));
  const sums = await page.evaluate(() => [...view.sums(...view.range).functions].map(([id, f]) => [meta.functions[id].name, grouped(f.calls), spanText(f.time)]).sort());
  assert.deepStrictEqual((await table()).map((r) => r.slice(0, 3)).sort(), sums);
  const kinds = await page.evaluate(() => [...view.sums(...view.range).functions.keys()].map((id) => [meta.functions[id].name, meta.functions[id].kind, meta.functions[id].dso].join()));
  assert.strictEqual(new Set(kinds).size, kinds.length, 'one function of several processes is one');
  assert(await page.evaluate(() => meta.functions.filter((f) => f.name === '_start' && f.calls).length) > 1, 'of which the demo has some');
  await page.locator('#drawer th button', {hasText: 'calls'}).click();
  const calls = (await table()).map((r) => Number(r[1].replaceAll('\u00a0', '')));
  assert.deepStrictEqual(calls, [...calls].sort((a, b) => b - a));
  // The flame graph: widths add up, and a click narrows it.
  await page.keyboard.press('g');
  const frames = await page.evaluate(() => ({all: view.drawer.sums.root.value, sum: [...view.drawer.sums.functions.values()].reduce((n, f) => n + f.time, 0),
    width: view.drawer.frames[0].width, top: view.drawer.frames.filter((f) => f.y === 16).map((f) => [f.node.value, f.width])}));
  assert.strictEqual(frames.all, frames.sum);
  for (const [value, width] of frames.top) assert(Math.abs(width / frames.width - value / frames.all) < 1e-6);
  const target = await page.evaluate(() => {
    const f = view.drawer.frames.filter((f) => f.y === 32).sort((a, b) => b.width - a.width)[0], b = view.drawer.canvas.getBoundingClientRect();
    return {at: [b.left + f.x + f.width / 2, b.top + f.y + 5], name: meta.functions[f.node.name].name, value: f.node.value};
  });
  await page.mouse.click(...target.at);
  assert.deepStrictEqual(await page.evaluate(() => [meta.functions[view.drawer.frames[0].node.name].name, view.drawer.frames[0].node.value]), [target.name, target.value]);
  // What is in view, as the range; and none.
  await press(page, 'r');
  assert.deepStrictEqual(await page.evaluate(() => view.range), [0, await page.evaluate(() => meta.length)]);
  await press(page, 'Escape');
  assert.strictEqual(await page.evaluate(() => view.range), null);
  await end();
}

async function main() {
  await compare('demo', demo, [[0, 1], [0.1, 0.35], [0.5, 0.5], [0.42, 0.97]]);
  await testRange();
  const storm = path.join(build, '../shared/captures/x86-board-storm/perf.data');
  if (fs.existsSync(storm)) await compare('storm', [storm], [[0.02, 0.045]]);
  else console.log('storm: SKIPPED, the capture is not here');
}

browser.runTests(main, scratch, 'the HTML view');
