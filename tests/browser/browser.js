// Chromium for the tests: a new profile each time, and no network access except what a test opens.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');

// null where the browser packages are not installed.
function playwright() {
  try {
    return require('playwright-core');
  } catch {
    return null;
  }
}
const executable = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => fs.existsSync(p));

async function open(size = {width: 1400, height: 860}) {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'asof-browser-'));
  const context = await playwright().chromium.launchPersistentContext(profile, {
    executablePath: executable, headless: true, viewport: size,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync'],
  });
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) complaints.push(m.text()); });
  page.on('pageerror', (e) => complaints.push(String(e)));
  page.on('requestfailed', (r) => complaints.push(`request failed: ${r.url().slice(0, 200)}`));
  const close = async () => {
    await context.close();
    fs.rmSync(profile, {recursive: true, force: true});
  };
  return {page, complaints, close};
}

// Runs a test program to its end, and takes its folder away. Exits with 77 (skipped) where there is no browser for `what`.
function runTests(main, scratch, what) {
  if (!playwright() || !executable) {
    console.log(`SKIPPED: ${what} needs node, Chromium and the packages of tests/browser (scripts/dev.sh test_deps)`);
    fs.rmSync(scratch, {recursive: true, force: true});
    process.exit(77);
  }
  main().catch((e) => {
    console.error(e);
    process.exitCode = 1;
  }).finally(() => {
    fs.rmSync(scratch, {recursive: true, force: true});
    process.exit();  // also when a failed test has left its browser open
  });
}

module.exports = {playwright, executable, open, runTests};
