// page_test.js BUILD SOURCE [TEST]: how the HTML view is moved about in, by pointer, keyboard and links, and what it looks
// like where there is little room, darkness, no time or no symbols. Exits with 77 (skipped) where there is no browser.
'use strict';
const assert = require('assert');
const {execFileSync} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const browser = require('./browser.js');
const {openPage, settle, range, panel, press, clickItem} = require('./page.js');

const [build, source] = process.argv.slice(2, 4).map((p) => path.resolve(p));
const only = process.argv[4];  // one test, by name
const asof = path.join(build, 'asof');
const demo = ['tests/data/demo/perf.data', '--symfs', 'tests/data/demo/symfs'];
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'asof-page-'));

const run = (program, args) => execFileSync(program, args, {cwd: source, encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'ignore']});
function pageOf(name, ...options) {
  const file = path.join(scratch, name);
  if (!fs.existsSync(file)) run(asof, ['timeline', ...(options.length ? options : demo), '--html', file, '-q']);
  return file;
}
const said = (page) => page.evaluate(() => document.getElementById('said').textContent);
const selected = (page) => page.evaluate(() => {
  const {type, index, track} = view.selected;
  return track ? {type, index, depth: track.slices.depth[index], track: track.name} : {type, index};
});

// A lane is as high as the deepest call in view.
async function testHeights() {
  const {page, end} = await openPage(pageOf('demo.html'));
  const lane = () => page.evaluate(() => {
    const lane = view.lanes.find((l) => l.kind === 'calls');
    const s = lane.track.slices;
    let depth = 0;
    for (let i = 0; i < s.count; ++i) if (s.end[i] > view.begin && s.begin[i] < view.end) depth = Math.max(depth, s.depth[i] + 1);
    return {rows: lane.rows, depth, height: lane.height, all: s.rows.length};
  });
  const whole = await lane();
  assert.deepStrictEqual([whole.rows, whole.height], [whole.all, whole.all * 16 + 6]);
  // A window in which the stack is not as deep.
  await page.evaluate(() => {
    const s = view.lanes.find((l) => l.kind === 'calls').track.slices;
    const shallow = s.rows[1].find((i) => s.end[i] - s.begin[i] > 20 && !(s.depth[i + 1] > 1));
    view.go(s.begin[shallow] + 1, s.end[shallow] - 1, true);
  });
  await settle(page);
  const part = await lane();
  assert(part.depth < whole.all, `${part.depth} of ${whole.all}`);
  assert.strictEqual(part.rows, part.depth);
  // “calls” makes rows low.
  const low = await page.evaluate(() => {
    const lane = view.lanes.find((l) => l.kind === 'calls');
    const box = view.canvas.getBoundingClientRect();
    return [box.left + 30, box.top + 24 + lane.y - view.scroll + 10];
  });
  await press(page, '0');
  await page.mouse.click(...low);
  await settle(page);
  assert.strictEqual((await lane()).height, whole.all * 4 + 6);
  await end();
}

// What is under the pointer stays there when lanes above it become lower.
async function testHeld() {
  const {page, end} = await openPage(pageOf('demo.html'), {size: {width: 1400, height: 460}});
  const top = () => page.evaluate(() => view.lanes.find((l) => l.name === 'worker 1201').y - view.scroll);
  await page.evaluate(() => {
    view.scroll = view.lanes.find((l) => l.name === 'worker 1201').y - 200;
    view.draw(true);
  });
  const before = await top(), height = await page.evaluate(() => view.height);
  const box = await page.evaluate(() => [view.canvas.getBoundingClientRect().left, view.canvas.getBoundingClientRect().top]);
  await page.mouse.move(box[0] + 400, box[1] + 24 + before + 5);
  await page.evaluate(() => {
    const s = view.lanes.find((l) => l.kind === 'calls').track.slices;
    const shallow = s.rows[1].find((i) => s.end[i] - s.begin[i] > 20 && !(s.depth[i + 1] > 1));
    view.go(s.begin[shallow] + 1, s.end[shallow] - 1, true);
  });
  await settle(page);
  assert(await page.evaluate(() => view.height) < height - 60);
  assert.strictEqual(await top(), before);
  await end();
}

// The page may load, send and be given nothing.
async function testPolicy() {
  const {page, close} = await browser.open();
  await page.goto('file://' + pageOf('demo.html'));
  await page.waitForFunction(() => typeof view !== 'undefined' && view);
  const allowed = await page.evaluate(async () => {
    const allowed = [];
    await fetch('data:text/plain,x').then(() => allowed.push('fetch'), () => {});
    const image = new Image();
    await new Promise((done) => {
      image.onload = () => done(allowed.push('image'));
      image.onerror = done;
      image.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=';
    });
    const base = document.createElement('base');
    base.href = 'https://example.com/';
    document.head.append(base);
    if (document.baseURI.includes('example')) allowed.push('base');
    return allowed;
  });
  assert.deepStrictEqual(allowed, []);
  await close();
}

// All programs and modules, not the first eight: a few rows, and the others when asked for.
async function testLifetimes() {
  const file = pageOf('many.html');
  const {page, end} = await openPage(file);
  await page.evaluate(() => {
    const some = meta.lives.find((l) => l.kind === 'module');
    for (let i = 0; i < 40; ++i) meta.lives.push({...some, name: `[extra_${i}]`, index: meta.lives.length, begin: i % 2 ? null : 1000 * i, end: null});
    view.lifeLanes.clear();
    view.makeLanes();
    view.redraw();
  });
  await settle(page);
  const drawn = () => page.evaluate(() => {
    const lives = view.places.filter((p) => p.item.type === 'life' && meta.lives[p.item.index].kind === 'module');
    const overlap = lives.some((a, i) => lives.some((b, k) => k > i && a.y === b.y && a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1));
    return {names: lives.map((p) => meta.lives[p.item.index].name), overlap};
  });
  const few = await drawn();
  assert.strictEqual(few.names.length, 7);
  assert(!few.overlap, 'painted over each other');
  const more = await page.evaluate(() => {
    const place = view.places.find((p) => p.item.type === 'more'), box = view.canvas.getBoundingClientRect();
    return [box.left + place.x + 20, box.top + place.y + 5];
  });
  await page.mouse.click(...more);
  await settle(page);
  const shown = await page.evaluate(() => view.lanes.find((l) => l.name === 'module').rows);
  assert.strictEqual(shown, 42, '41 modules, and the row that closes them');
  assert(!(await drawn()).overlap);
  // And as a list.
  await page.evaluate(() => view.panel.lives({lane: view.lanes.find((l) => l.name === 'module')}));
  assert.match(await panel(page), /^module \(41\)[\s\S]*extra_39/);
  await end();
}

// The next change that a CPU ran, and from its last old to its first new instruction.
async function testChanges() {
  const {page, end} = await openPage(pageOf('demo.html'));
  // In the demo code ran at each change: at every other one it did not, here.
  await page.evaluate(() => { for (let i = 1; i < meta.pokes.length; i += 2) meta.pokes[i].visits = []; });
  const ran = await page.evaluate(() => meta.pokes.map((p, i) => p.visits.length ? i : -1).filter((i) => i >= 0));
  assert.strictEqual(ran.length, 5);
  const seen = [];
  for (let i = 0; i < ran.length; ++i) {
    await press(page, '}');
    seen.push((await selected(page)).index);
    const [begin, until] = await range(page);
    const times = await page.evaluate((i) => meta.pokes[i].visits.flatMap((v) => [v.old, v.new]).filter((t) => t !== null), seen[i]);
    for (const t of times) assert(t > begin && t < until, `change ${seen[i]}: ${t} is outside of ${begin}, ${until}`);
    assert(until - begin < 1.3 * (Math.max(...times) - Math.min(...times)) + 100, 'no wider than that');
  }
  assert.deepStrictEqual(seen, ran);
  await press(page, '}');
  assert.match(await said(page), /no further change/);
  if (ran.length > 1) {
    await press(page, '{');
    assert.strictEqual((await selected(page)).index, ran[ran.length - 2]);
  }
  // One CPU's, by its link.
  await page.locator('#panel button.link', {hasText: /^CPU 1$/}).click();
  await settle(page);
  const visit = await page.evaluate(() => meta.pokes[view.selected.index].visits.find((v) => v.cpu === 1));
  const [begin, until] = await range(page);
  assert(begin < visit.old && until > visit.new && until - begin < 1.3 * (visit.new - visit.old) + 100);
  await end();
}

// The address leads back to what is shown, in another page of the same capture as well.
async function testLinks() {
  const file = pageOf('demo.html');
  const first = await openPage(file);
  await press(first.page, '}');
  await first.page.keyboard.press('t');
  await first.page.evaluate(() => view.setRange([20000, 30000]));
  await first.page.evaluate(() => view.select({type: 'poke', index: 1}));
  await press(first.page, 'w', 2);
  await first.page.waitForFunction(() => location.hash.includes('show=functions') && location.hash.includes('poke=2'));
  await first.page.waitForTimeout(400);
  const hash = await first.page.evaluate(() => location.hash);
  const want = await first.page.evaluate(() => [view.begin, view.end, view.range, view.selected.index, view.drawer.shown]);
  assert.match(hash, /^#time=6\.\d{9,},6\.\d{9,}&range=6\.000019999,6\.000029999&poke=2&show=functions$/);
  await first.end();
  const second = await openPage(pageOf('again.html'), {hash});
  await settle(second.page);
  const got = await second.page.evaluate(() => [view.begin, view.end, view.range, view.selected.index, view.drawer.shown]);
  for (const i of [0, 1]) assert(Math.abs(got[i] - want[i]) <= 0.125, `${got} is not ${want}`);
  assert.deepStrictEqual(got.slice(2), want.slice(2));
  // Calls and searches; what does not exist is passed over.
  await second.page.evaluate(() => { location.hash = '#function=vfs_read&call=0,7'; });
  await second.page.waitForFunction(() => view.selected && view.selected.type === 'slice' && view.selected.index === 7);
  assert.match(await second.page.evaluate(() => document.getElementById('found').textContent), /^\d+ calls$/);
  await second.page.evaluate(() => { location.hash = '#time=x,1&poke=99999&call=77,-1&gap=__proto__&show=constructor'; });
  await settle(second.page);
  assert.strictEqual((await selected(second.page)).index, 7);
  await second.end();
}

// By keyboard alone: from call to call, to another track, groups; a screen reader is told.
async function testKeyboard() {
  const {page, end} = await openPage(pageOf('demo.html'));
  await press(page, 'ArrowDown');
  const top = await selected(page);
  assert.deepStrictEqual([top.type, top.depth, top.track], ['slice', 0, 'CPU 0']);
  await press(page, 'ArrowDown');
  const callee = await selected(page);
  assert.strictEqual(callee.depth, 1);
  const parent = await page.evaluate(() => view.parentOf(view.selected.track, view.selected.index));
  assert.strictEqual(parent, top.index);
  await press(page, 'ArrowRight');
  const next = await selected(page);
  assert(next.index > callee.index && next.depth === 1);
  const between = await page.evaluate(([a, b]) => Array.from(view.selected.track.slices.depth.slice(a + 1, b)).filter((d) => d === 1).length, [callee.index, next.index]);
  assert.strictEqual(between, 0, 'the very next one');
  await press(page, 'ArrowLeft');
  assert.strictEqual((await selected(page)).index, callee.index);
  const name = await page.evaluate(() => meta.functions[view.selected.track.slices.name[view.selected.index]].name);
  assert.match(await said(page), new RegExp(`^${name}, \\w+, .*instructions?, CPU 0, depth 1$`));
  assert((await panel(page)).startsWith(name));
  await press(page, 'ArrowUp');
  assert.strictEqual((await selected(page)).index, top.index);
  await press(page, 'PageDown');
  assert.strictEqual((await selected(page)).track, 'CPU 1');
  // With the tab key to the list of tracks, which opens and closes them.
  const groups = await page.evaluate(() => view.lanes.filter((l) => l.kind === 'group').map((l) => l.name));
  const outline = page.locator('#outline button[aria-expanded]');
  assert.deepStrictEqual(await outline.allTextContents(), groups);
  await page.locator('#outline button', {hasText: /^CPU 0$/}).focus();
  await page.keyboard.press('Enter');
  await settle(page);
  assert.strictEqual(await page.evaluate(() => document.activeElement.getAttribute('aria-expanded')), 'false');
  assert.strictEqual(await page.evaluate(() => view.lanes.filter((l) => l.kind === 'calls' && l.track.name === 'CPU 0').length), 0);
  // Whatever can be focused has a name.
  const nameless = await page.evaluate(() => [...document.querySelectorAll('button, input, canvas[tabindex], aside[tabindex]')]
    .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim())).map((e) => e.outerHTML));
  assert.deepStrictEqual(nameless, []);
  // What the browser tells a screen reader: headings, a table with the names of its columns, and what was just selected.
  await press(page, '}');
  const told = await page.locator('body').ariaSnapshot();
  for (const part of [/navigation "tracks"/, /application "timeline"/, /complementary "details"/, /heading "jump_label: nop to jump"/,
    /columnheader "old until"/, /row "CPU 0 6\.[0-9]+ 6\.[0-9]+/, /status: "change 1, jump_label: nop to jump, update_process_times/]) assert.match(told, part);
  await end();
}

// A list of matches, each of which leads to its call.
async function testMatches() {
  const {page, end} = await openPage(pageOf('demo.html'));
  await page.keyboard.press('/');
  await page.keyboard.type('vfs_');
  // What was typed first is looked for first, when typing is slow.
  await page.waitForFunction(() => {
    const of = (f) => meta.functions[f].name.includes('vfs_');
    const calls = view.data.tracks.filter((t) => t.kind === 'cpu').reduce((n, t) => n + [...t.slices.name].filter(of).length, 0);
    return document.getElementById('panel').innerText.includes(`${calls} calls of `);
  });
  const entries = await page.evaluate(() => [...document.querySelectorAll('#panel button.link')].map((b) => b.textContent).filter((t) => /CPU \d/.test(t)));
  assert(entries.length >= 50);
  const times = entries.map((t) => t.split(' ')[0]);
  assert.deepStrictEqual(times, [...times].sort(), 'in order of time');
  await page.locator('#panel button.link', {hasText: entries[3]}).first().click();
  await settle(page);
  assert.strictEqual(await page.evaluate(() => clockText(view.selected.track.slices.begin[view.selected.index])), times[3]);
  // Forwards over all of them, and back.
  await page.evaluate(() => view.search('vfs_read', true));
  const order = [];
  for (let last = -1;;) {
    await page.evaluate(() => view.nextFound(1));
    const code = await page.evaluate(() => view.selected.track.id * 1e6 + view.selected.index);
    if (code === last) break;
    order.push(last = code);
  }
  assert.strictEqual(order.length, await page.evaluate(() => view.matches.count));
  assert.strictEqual(new Set(order).size, order.length);
  await page.evaluate(() => view.nextFound(-1));
  assert.strictEqual(await page.evaluate(() => view.selected.track.id * 1e6 + view.selected.index), order[order.length - 2]);
  // Programs, modules and changes are found as well.
  await page.evaluate(() => view.search('count_packets'));
  assert.match(await panel(page), /programs and modules\s+bpf_prog_\w+_count_packets/i);
  await page.evaluate(() => view.search('update_process'));
  assert.match(await panel(page), /changes of text\s+6\.\d+  ?update_process_times/i);
  await end();
}

// Contrast of text on what it is written on, by WCAG 2: 4.5 at least, in both themes.
async function testThemes() {
  for (const dark of [false, true]) {
    const {page, end} = await openPage(pageOf('demo.html'), {dark});
    const worst = await page.evaluate(() => {
      const light = (hex) => {
        const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
      const many = colorsOf(Object.keys(kHues).concat('unnamed', 'untraced').flatMap((kind) => Array.from({length: 200}, (_, i) => ({kind, name: `0x${i}f${i * 37}`}))));
      return {pairs: [...view.colors, ...many].reduce((m, c) => Math.min(m, contrast(c, theme.ink)), 99),
        page: Math.min(contrast(theme.ink, theme.paper), contrast(theme.dim, theme.paper), contrast(theme.dim, theme.band), contrast(theme.mark, theme.paper)),
        paper: light(theme.paper)};
    });
    assert(worst.pairs >= 4.5 && worst.page >= 4.5, JSON.stringify(worst));
    assert.strictEqual(worst.paper < 0.1, dark);
    const corner = () => page.evaluate(() => {
      const one = document.createElement('canvas'), c = one.getContext('2d');
      c.drawImage(view.canvas, 3, view.canvas.height - 3, 1, 1, 0, 0, 1, 1);
      return Array.from(c.getImageData(0, 0, 1, 1).data.slice(0, 3)).reduce((a, b) => a + b) / 3;
    });
    assert.strictEqual(await corner() < 100, dark);
    await press(page, 'b');
    assert.strictEqual(await corner() < 100, !dark);
    await end();
  }
}

// A phone: nothing is wider than the window, lanes and panel have room, two fingers zoom.
async function testPhone() {
  const {page, end} = await openPage(pageOf('demo.html'), {size: {width: 390, height: 844}});
  const sizes = await page.evaluate(() => ({wide: document.documentElement.scrollWidth, lanes: view.canvas.clientHeight, panel: document.getElementById('panel').clientHeight,
    width: view.width, out: [...document.querySelectorAll('header *, #panel')].filter((e) => e.getBoundingClientRect().right > 391).length}));
  assert(sizes.wide <= 390 && sizes.out === 0 && sizes.lanes > 300 && sizes.panel > 150 && sizes.width > 250, JSON.stringify(sizes));
  const before = await range(page);
  await page.evaluate(() => {
    const fire = (type, id, x) => view.canvas.dispatchEvent(new PointerEvent(type, {pointerId: id, pointerType: 'touch', clientX: x, clientY: view.canvas.getBoundingClientRect().top + 200, bubbles: true}));
    view.canvas.setPointerCapture = () => {};
    fire('pointerdown', 1, 200);
    fire('pointerdown', 2, 260);
    fire('pointermove', 1, 140);
    fire('pointermove', 2, 320);
    fire('pointerup', 1, 140);
    fire('pointerup', 2, 320);
  });
  await settle(page);
  const after = await range(page);
  assert(Math.abs((before[1] - before[0]) / (after[1] - after[0]) - 3) < 0.05, 'three times as wide');
  await end();
}

// A capture without a clock and without symbols: instructions on the axis, no seconds anywhere, code has colours.
async function testNoTime() {
  const bundle = path.join(source, 'build/shared/corpus/griffin-hello');
  const input = [path.join(build, '../shared/corpus/griffin-hello/bundle.json'), path.join(bundle, 'bundle.json')].find((p) => fs.existsSync(p));
  if (!input) return console.log('testNoTime: SKIPPED, the corpus is not here');
  const {page, end} = await openPage(pageOf('notime.html', input));
  assert.strictEqual(await page.evaluate(() => meta.clock), 'instructions');
  const about = await panel(page);
  assert.doesNotMatch(about, /\d\.\d{9}|\d n?s\b/);
  await page.keyboard.press('t');
  assert.match(await page.evaluate(() => document.getElementById('drawer').innerText), /calls\s+own instructions/);
  assert.doesNotMatch(await page.evaluate(() => document.getElementById('drawer').innerText), /own time| ns\b/);
  await press(page, 'ArrowDown');
  assert.doesNotMatch(await panel(page), /lasts/);
  assert.doesNotMatch(await page.evaluate(() => document.getElementById('range').textContent), /\d\.\d|\d n?s\b/);
  const texts = await page.evaluate(() => {
    const texts = [], old = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function(text, x, y) { if (this.canvas.id === 'lanes' && y < 22) texts.push(text); };
    view.draw(true);
    CanvasRenderingContext2D.prototype.fillText = old;
    return texts;
  });
  assert(texts.includes('instructions') && texts.length >= 3, texts.join());
  for (const t of texts) assert.match(t, /^(instructions|\+?[\d\u00a0.]+( [kMG])?)$/);
  const hues = await page.evaluate(() => new Set(meta.functions.map((f, i) => f.kind === 'unnamed' ? view.colors[i] : null).filter((c) => c)).size);
  const unnamed = await page.evaluate(() => meta.functions.filter((f) => f.kind === 'unnamed').length);
  assert(unnamed < 3 || hues > unnamed / 4, `${hues} colours for ${unnamed} functions without names`);
  await end();
}

// Browsers without DecompressionStream read the same.
async function testInflate() {
  const file = pageOf('demo.html');
  const sum = (page) => page.evaluate(() => JSON.stringify(meta).length + ' ' + view.data.tracks.map((t) => t.slices.begin.reduce((a, b) => a + b, 0) + t.slices.self.reduce((a, b) => a + b, 0)).join());
  const usual = await openPage(file);
  const want = await sum(usual.page);
  await usual.end();
  const old = await openPage(file, {before: () => { delete globalThis.DecompressionStream; }});
  assert.strictEqual(await old.page.evaluate(() => typeof DecompressionStream), 'undefined');
  assert.strictEqual(await sum(old.page), want);
  await old.end();
  // A page that was cut says so.
  const cut = path.join(scratch, 'cut.html');
  const text = fs.readFileSync(file, 'utf8');
  const at = text.indexOf('id="bytes">') + 11;
  fs.writeFileSync(cut, text.slice(0, at + 400) + text.slice(at + 800));
  for (const before of [undefined, () => { delete globalThis.DecompressionStream; }]) {
    const {page, close} = await browser.open();
    if (before) await page.addInitScript(before);
    await page.goto('file://' + cut);
    await page.waitForFunction(() => /cannot be read/.test(document.getElementById('panel').textContent));
    await close();
  }
}

async function main() {
  for (const test of [testHeights, testHeld, testPolicy, testLifetimes, testChanges, testLinks, testKeyboard, testMatches, testThemes, testPhone, testNoTime, testInflate]) {
    if (only && test.name !== only) continue;
    const start = Date.now();
    await test();
    console.log(`${test.name}: passed (${Date.now() - start} ms)`);
  }
}

browser.runTests(main, scratch, 'the HTML view');
