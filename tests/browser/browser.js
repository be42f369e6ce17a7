// The browser of the tests, Chromium or with ASOF_BROWSER=firefox Firefox as it is installed: a new profile for each window, and no
// network access except what a test opens.
'use strict';
const fs = require('fs');

// null where the browser packages are not installed.
function playwright() {
  try {
    return require('playwright-core');
  } catch {
    return null;
  }
}
const firefox = process.env.ASOF_BROWSER === 'firefox';
const programs = firefox ? ['/usr/bin/firefox-esr', '/usr/bin/firefox'] : ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const executable = programs.find((p) => fs.existsSync(p));

// One program for all tests of a file: to start it takes longer than most tests. Firefox has its theme from its preferences.
const started = new Map();
function program(dark) {
  const key = firefox && dark;
  if (!started.has(key)) {
    started.set(key, firefox ? playwright().firefox.launch({
      channel: 'moz-firefox', executablePath: executable, headless: true, firefoxUserPrefs: {'ui.systemUsesDarkTheme': dark ? 1 : 0},
    }) : playwright().chromium.launch({
      executablePath: executable, headless: true,
      args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
        '--disable-component-update', '--disable-sync'],
    }));
  }
  return started.get(key);
}

// A window that shares nothing with others, and what ends it.
async function launch(size, dark) {
  const context = await (await program(dark)).newContext(firefox ? {viewport: size} : {viewport: size, colorScheme: dark ? 'dark' : 'light'});
  return [context, () => context.close()];
}

async function open(size = {width: 1400, height: 860}, dark = false) {
  const [context, close] = await launch(size, dark);
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) complaints.push(m.text()); });
  page.on('pageerror', (e) => complaints.push(String(e)));
  page.on('requestfailed', (r) => complaints.push(`request failed: ${r.url().slice(0, 200)}`));
  return {page, complaints, close};
}

// Runs a test program to its end, and takes its folder away. Exits with 77 (skipped) where there is no browser for `what`.
function runTests(main, scratch, what) {
  if (!playwright() || !executable) {
    console.log(`SKIPPED: ${what} needs node, ${firefox ? 'Firefox' : 'Chromium'} and the packages of tests/browser (scripts/dev.sh test_deps)`);
    fs.rmSync(scratch, {recursive: true, force: true});
    process.exit(77);
  }
  main().catch((e) => {
    console.error(e);
    process.exitCode = 1;
  }).finally(async () => {
    await Promise.allSettled([...started.values()].map(async (browser) => (await browser).close()));
    fs.rmSync(scratch, {recursive: true, force: true});
    process.exit();  // also when a failed test has left its browser open
  });
}

module.exports = {playwright, firefox, executable, open, runTests};
