// view_test.js BUILD SOURCE: the HTML view in headless Chromium, used as a person would. Exits with 77
// (skipped) where there is no browser.
'use strict';
const assert = require('assert');
const {execFileSync} = require('child_process');
const fs = require('fs');
const http = require('http');
const os = require('os');
const path = require('path');
const browser = require('./browser.js');
const {openPage, settle, range, panel, press, clickItem, picture} = require('./page.js');

const [build, source] = process.argv.slice(2).map((p) => path.resolve(p));
const asof = path.join(build, 'asof');
const demo = ['tests/data/demo/perf.data', '--symfs', 'tests/data/demo/symfs'];
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'asof-view-'));

function run(program, args) {
  return execFileSync(program, args, {cwd: source, encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'ignore']});
}

// The first time each CPU ran the new text at an address, and the last time the old, from `asof decode`.
function visits(address) {
  const out = new Map();
  const lines = run(asof, ['decode', ...demo, '-q', '--ns', '-F', 'cpu,time,ip,textver', '--addr-range', `${address}-${address}`]);
  for (const line of lines.trim().split('\n')) {
    const [, cpu, time, version] = line.match(/\[(\d+)\]\s+([\d.]+):.*\sv(\d+)/);
    const visit = out.get(Number(cpu)) || {};
    if (version === '1') visit.old = time;
    if (version === '2' && !visit.new) visit.new = time;
    out.set(Number(cpu), visit);
  }
  return out;
}

async function testDemo() {
  const file = path.join(scratch, 'demo.html');
  run(asof, ['timeline', ...demo, '--html', file, '-q']);
  const {page, end} = await openPage(file);
  assert.match(await page.title(), /^asof: /);
  assert.match(await panel(page), /10 changes of text and 1 gap are here/);

  // Keys: zoom in, zoom out, right, left, whole range.
  const whole = await range(page);
  await page.mouse.move(600, 400);
  await press(page, 'w', 6);
  const near = await range(page);
  assert(near[1] - near[0] < (whole[1] - whole[0]) / 8, `${near} of ${whole}`);
  await press(page, 'd', 2);
  assert((await range(page))[0] > near[0]);
  await press(page, 'a', 4);
  assert((await range(page))[0] < near[0]);
  await press(page, 's', 3);
  const far = await range(page);
  assert(far[1] - far[0] > near[1] - near[0]);
  await press(page, '0');
  assert.deepStrictEqual(await range(page), whole);

  // A text change: both disassemblies, and which CPU ran which.
  await press(page, ']');
  await press(page, '0');
  await clickItem(page, 'poke', 0);
  const poke = await panel(page);
  const address = poke.match(/ffffffff[0-9a-f]{8}/)[0];
  assert.match(poke, /jump_label/);
  assert.match(poke, /0f 1f 44 00 00\s+nop/);
  assert.match(poke, /e9 [0-9a-f ]+\s+jmp 0x[0-9a-f]+\s+<update_process_times/);
  const want = visits(address);
  assert.strictEqual(want.size, 2);
  for (const [cpu, {old, new: first}] of want) {
    assert(poke.includes(`CPU ${cpu}\t${old}\t${first}`), `CPU ${cpu}: ${old}, ${first}, but\n${poke}`);
  }

  // The loss, and a program that was loaded and unloaded.
  await clickItem(page, 'gap', 0);
  assert.match(await panel(page), /E-LOST-103[\s\S]*TRUNCATED/);
  const bpf = await page.evaluate(() => meta.lives.find((l) => l.kind === 'bpf' && l.name.includes('count_packets')).index);
  await clickItem(page, 'life', bpf);
  assert.match(await panel(page), /count_packets[\s\S]*3a9155e0127f0c44/);

  // Search, and moving from match to match.
  const calls = await page.evaluate(() => {
    let n = 0;
    for (const t of view.data.tracks) if (t.kind === 'cpu') for (const f of t.slices.name) n += meta.functions[f].name === 'vfs_read';
    return n;
  });
  assert(calls > 1);
  await page.keyboard.press('/');
  await page.keyboard.type('vfs_read');
  // What was typed first is looked for first, when typing is slow.
  await page.waitForFunction((text) => document.getElementById('found').textContent === text, `${calls} calls`);
  await page.keyboard.press('Enter');
  await settle(page);
  assert.match(await panel(page), /^vfs_read/);
  const first = await page.evaluate(() => view.spanOf(view.selected)[0]);
  await page.keyboard.press('Enter');
  await settle(page);
  assert((await page.evaluate(() => view.spanOf(view.selected)[0])) > first);
  await page.keyboard.press('Escape');

  // Down to single instructions: those under the pointer are those that decode prints for that time.
  const chosen = await page.evaluate(() => {
    const cpu = view.data.cpus[0];
    const index = cpu.blocks.what.findIndex((b, i) => meta.blocks[b].lines.length > 2 && cpu.blocks.end[i] > cpu.blocks.begin[i]);
    view.select({type: 'block', cpu, index}, true);
    return {time: clockText(cpu.blocks.begin[index]), lines: meta.blocks[cpu.blocks.what[index]].lines};
  });
  await press(page, 'f');
  const text = await panel(page);
  for (const line of chosen.lines) assert(text.includes(line));
  const decoded = run(asof, ['decode', ...demo, '-q', '-C', '0', '--ns', '-F', 'ip,insn,disasm']);
  for (const line of chosen.lines) {
    const [, ip, disasm] = line.match(/^([0-9a-f]+)\s+(?:[0-9a-f]{2} )+\s*(.*)$/);
    assert(decoded.split('\n').some((l) => l.includes(ip) && l.includes(disasm)), line);
  }
  await picture(page, path.join(build, 'html-view-instructions.png'));

  // For docs/html-view.md: a change with the last run of the old text and the first of the new in one picture.
  await page.evaluate(() => {
    view.select({type: 'poke', index: 1});
    const t = meta.pokes[1].time;
    view.go(t - 5200, t + 4200);
    view.canvas.blur();
  });
  await settle(page);
  await picture(page, path.join(build, 'html-view.png'));
  await end();
}

// Where instructions are not in the page, it states this, with the command that adds them.
async function testMissing() {
  const file = path.join(scratch, 'calls.html');
  run(asof, ['timeline', ...demo, '--html', file, '--detail', 'calls', '-q']);
  const {page, end} = await openPage(file);
  assert.match(await panel(page), /Single instructions are not here/);
  await page.mouse.move(600, 400);
  await press(page, 'w', 15);
  assert.match(await page.evaluate(() => document.getElementById('notice').textContent),
               /not in this file; .*asof timeline .*--symfs .*--detail insn --time \d+\.\d+,\d+\.\d+/);
  const command = await page.evaluate(() => view.command);
  await page.evaluate(() => view.select(view.places.find((p) => p.item.type === 'missing').item));
  assert((await panel(page)).includes(command));
  // The command works.
  const [program, ...args] = command.split(' ');
  assert.strictEqual(program, 'asof');
  run(asof, [...args.map((a) => (a === file ? path.join(scratch, 'part.html') : a)), '-q']);
  const part = await openPage(path.join(scratch, 'part.html'));
  assert((await part.page.evaluate(() => view.data.cpus.reduce((n, c) => n + c.blocks.count, 0))) > 0);
  await part.end();
  await end();
}

async function testMillion() {
  const file = path.join(scratch, 'million.html');
  run(path.join(build, 'tests/make_view'), ['tests/data/demo/perf.data', '1000000', file]);
  const {page, end, ms} = await openPage(file);
  console.log(`a million calls (${(fs.statSync(file).size / 1e6).toFixed(1)} MB): open after ${ms} ms`);
  const counts = await page.evaluate(() => view.data.tracks.map((t) => t.slices.count));
  assert(counts.reduce((a, b) => a + b) > 999_000);
  // Rows must be in order, or drawing and clicks would miss items.
  const disorder = await page.evaluate(() => {
    let n = 0;
    for (const {slices: s} of view.data.tracks) {
      for (const row of s.rows) for (let i = 1; i < row.length; ++i) n += s.begin[row[i]] < s.end[row[i - 1]];
    }
    return n;
  });
  assert.strictEqual(disorder, 0);
  // A name that would end the script if it were not escaped.
  await page.keyboard.press('/');
  await page.keyboard.type('<img');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('panel').innerText.includes("</script><script>document.title='broken'"));
  assert.strictEqual(await page.title(), 'asof: a million calls');
  assert.strictEqual(await page.evaluate(() => document.images.length), 0);
  await end();
}

// Names that are markup, scripts, escape sequences, of 60,000 bytes: they stand there as text, and do nothing.
async function testHostileNames() {
  const folder = path.join(scratch, 'hostile');
  const file = path.join(scratch, 'hostile.html');
  run(path.join(build, 'tests/make_demo'), ['--hostile', folder]);
  run(asof, ['timeline', path.join(folder, 'perf.data'), '--symfs', path.join(folder, 'symfs'), '--html', file, '-q']);
  const {page, end} = await openPage(file);
  const before = await page.evaluate(() => document.querySelectorAll('*').length);
  // Every function, program, gap, change and run of code once in the panel, and everything that is drawn.
  const shown = await page.evaluate(() => {
    const texts = [];
    const show = (item) => {
      view.select(item, true);
      texts.push(document.getElementById('panel').innerText);
    };
    const seen = new Set();
    for (const track of view.data.tracks) {
      track.slices.name.forEach((f, index) => {
        if (!seen.has(f)) show({type: 'slice', track, index});
        seen.add(f);
      });
    }
    meta.lives.forEach((l) => show({type: 'life', index: l.index}));
    meta.pokes.forEach((_, index) => show({type: 'poke', index}));
    meta.gaps.forEach((_, index) => show({type: 'gap', index}));
    const cpu = view.data.cpus[0];
    for (let index = 0; index < cpu.blocks.count; index += 7) show({type: 'block', cpu, index});
    return texts.join('\n');
  });
  await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  await page.keyboard.type('<img');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('panel').innerText.includes('</script><script>window.owned=1</script><img'));
  await page.mouse.move(600, 400);
  for (const name of ['</script><script>window.owned=1</script><img src=x onerror=window.owned=1>', ']]>--><svg/onload=window.owned=1>',
    "=cmd|'/c calc'!A1", '\\x1b[2J']) {
    assert(shown.includes(name), `${name} is not shown as text`);
  }
  assert(!/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/.test(shown), 'control characters');
  assert.strictEqual(await page.evaluate(() => window.owned), undefined);
  assert.deepStrictEqual(await page.evaluate(() => ['img', 'svg', 'iframe', 'a', 'form', 'object'].filter((t) => document.querySelector(t))), []);
  // The data of the calls are taken out when they are read.
  assert.strictEqual(await page.evaluate(() => document.scripts.length), 2);
  assert(before < 200);
  await end();
}

// If markup came into the page in spite of all that: no script or style of its own, no request, no form, no other base.
async function testPolicy() {
  const asked = [];
  const server = http.createServer((request, response) => {
    asked.push(request.url);
    response.end();
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const url = `http://127.0.0.1:${server.address().port}/`;
  const file = path.join(scratch, 'demo.html');
  const {page, close} = await openPage(file);
  const wanted = ['base-uri', 'connect-src', 'form-action', 'frame-src', 'img-src', 'script-src-elem', 'style-src-elem'];
  const refused = await page.evaluate(async ([url, wanted]) => {
    const refused = new Set();
    document.addEventListener('securitypolicyviolation', (e) => refused.add(e.effectiveDirective));
    const place = document.createElement('div');
    document.body.append(place);
    place.innerHTML = `<img src="${url}1" onerror="window.owned=1"><p style="color:red">x</p><iframe src="${url}2"></iframe>` +
      `<form action="${url}3"><input type="submit"></form><link rel="stylesheet" href="${url}4"><base href="${url}5">`;
    for (const [tag, text] of [['script', 'window.owned=2'], ['style', 'body{display:none}']]) {
      const element = document.createElement(tag);
      element.textContent = text;
      document.body.append(element);
    }
    try {
      place.querySelector('form').submit();
    } catch {
      refused.add('form-action');  // Firefox
    }
    await fetch(url + '6').catch(() => {});
    // A form is refused by another process of the browser, which may be late.
    for (let i = 0; i < 400 && !wanted.every((what) => refused.has(what)); ++i) await new Promise((later) => setTimeout(later, 50));
    return [...refused].sort();
  }, [url, wanted]);
  assert.strictEqual(await page.evaluate(() => window.owned), undefined);
  for (const what of wanted) {
    assert(refused.includes(what), `${what} is not refused: ${refused}`);
  }
  assert.deepStrictEqual(asked, []);
  await close();
  server.close();
}

async function main() {
  for (const test of [testDemo, testMissing, testMillion, testHostileNames, testPolicy]) {
    const start = Date.now();
    await test();
    console.log(`${test.name}: passed (${Date.now() - start} ms)`);
  }
}

browser.runTests(main, scratch, 'the HTML view');
