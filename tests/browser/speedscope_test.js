// speedscope_test.js BUILD SOURCE: `asof script` opened in speedscope, the flame graph viewer: its functions and their own times are those of
// the printed samples. Exits with 77 (skipped) where there is no browser.
'use strict';
const assert = require('assert');
const {execFileSync} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const browser = require('./browser.js');

const [build, source] = process.argv.slice(2).map((p) => path.resolve(p));
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'asof-speedscope-'));

// The samples of the first thread: when, and in which function.
function samplesOf(text) {
  const samples = [];
  for (const block of text.split('\n\n')) {
    const [head, leaf] = block.split('\n').filter((line) => line !== '');
    if (leaf === undefined) continue;
    const [, thread, seconds, ns] = head.match(/^\s*\S+\s+(\d+) .*?(\d+)\.(\d{9}):\s/);
    samples.push({thread, time: Number(seconds) * 1e9 + Number(ns), name: leaf.trim().split(' ')[1].replace(/\+0x[0-9a-f]+$/, '')});
  }
  return samples.filter((s) => s.thread === samples[0].thread);
}

// speedscope divides the time between two samples equally among them.
function ownTimes(samples) {
  const own = {};
  samples.forEach(({time, name}, i) => {
    const before = i > 0 ? time - samples[i - 1].time : 0;
    const after = i + 1 < samples.length ? samples[i + 1].time - time : 0;
    own[name] = (own[name] || 0) + (before + after) / 2;
  });
  return own;
}

function pageOfSpeedscope() {
  try {
    return path.join(path.dirname(require.resolve('speedscope/package.json')), 'dist', 'release', 'index.html');
  } catch {
    return null;
  }
}

// Its page takes a file as a script beside it.
async function openIn(page, text) {
  const file = path.join(scratch, 'profile.js');
  fs.writeFileSync(file, `speedscope.loadFileFromBase64("asof.txt", "${Buffer.from(text).toString('base64')}")`);
  await page.goto(`file://${pageOfSpeedscope()}#localProfilePath=${file}&view=sandwich`);
  await page.getByText('Symbol Name').waitFor();
}

const units = {ns: 1, 'µs': 1e3, ms: 1e6, s: 1e9};
const nanoseconds = (shown) => {
  const [, number, unit] = shown.match(/^([\d.]+)(\D+?) \(/);
  return Number(number) * units[unit];
};

async function main() {
  const text = execFileSync(path.join(build, 'asof'), ['script', '--ns', '--itrace=i20ig', 'tests/data/demo/perf.data'],
    {cwd: source, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore']});
  const want = ownTimes(samplesOf(text));
  const {page, close} = await browser.open();
  await openIn(page, text);
  // Columns: total, own, name. Rows out of view are not in the document: it shows those with the longest own times.
  const rows = await page.evaluate(() => [...document.querySelectorAll('table tr')].map((r) => [...r.children].map((c) => c.innerText.trim())));
  const shown = rows.filter((r) => /^[\d.]+\D+ \(/.test(r[1] || ''));
  assert(shown.length >= 15, `${shown.length} rows`);
  let sum = 0;
  for (const [, own, name] of shown) {
    const time = nanoseconds(own), printed = want[name] ?? 0;
    assert(Math.abs(time - printed) <= printed * 0.006 + 1, `${name}: ${time} ns, of ${printed}`);  // it shows hundredths
    sum += time;
  }
  const all = Object.values(want).reduce((x, y) => x + y);
  assert(sum > all * 0.95, `${sum} ns, of ${all}`);
  await close();
  console.log(`${shown.length} functions as printed`);
}

if (!pageOfSpeedscope()) {
  console.log('SKIPPED: speedscope is not installed (scripts/dev.sh test_deps)');
  process.exit(77);
}
browser.runTests(main, scratch, 'speedscope');
