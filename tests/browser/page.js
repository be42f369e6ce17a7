// The HTML view, opened in a browser: what its tests share.
'use strict';
const assert = require('assert');
const browser = require('./browser.js');

// `hash`: the part of the address behind the file; `before`: run in the page before its own script.
async function openPage(file, {size, hash = '', dark = false, before} = {}) {
  const opened = await browser.open(size, dark);
  if (before) await opened.page.addInitScript(before);
  const requests = [];
  opened.page.on('request', (r) => requests.push(r.url()));
  const start = Date.now();
  await opened.page.goto('file://' + file + hash);
  await opened.page.waitForFunction(() => typeof view !== 'undefined' && view);
  await opened.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  opened.ms = Date.now() - start;
  opened.end = async () => {
    assert.deepStrictEqual(opened.complaints, []);
    // Firefox does not tell of the page's own file.
    const others = requests.map((r) => r.split('#')[0]).filter((r) => !browser.firefox || r !== 'file://' + file);
    assert.deepStrictEqual(others, browser.firefox ? [] : ['file://' + file], 'the page must request nothing else');
    await opened.close();
  };
  return opened;
}

// Until the picture no longer changes.
async function settle(page) {
  await page.waitForFunction(() => view.begin === view.wantBegin && view.end === view.wantEnd && !view.pending);
}
const range = (page) => page.evaluate(() => [view.begin, view.end]);
const panel = (page) => page.evaluate(() => document.getElementById('panel').innerText);
const press = async (page, key, times = 1) => {
  for (let i = 0; i < times; ++i) await page.keyboard.press(key);
  await settle(page);
};

// Clicks into the canvas, where the view drew that item.
async function clickItem(page, type, index) {
  const at = await page.evaluate(([type, index]) => {
    const place = view.places.find((p) => p.item.type === type && p.item.index === index);
    const box = view.canvas.getBoundingClientRect();
    return place && [box.left + place.x + place.width / 2, box.top + place.y + place.height / 2];
  }, [type, index]);
  assert(at, `no ${type} ${index} in the picture`);
  await page.mouse.click(...at);
  await settle(page);
}

// Of Firefox there are none: Playwright adds a style for them, which the page's policy refuses.
const picture = async (page, file) => browser.firefox || page.screenshot({path: file});

module.exports = {openPage, settle, range, panel, press, clickItem, picture};
