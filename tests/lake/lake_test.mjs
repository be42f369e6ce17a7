// lake_test.mjs BUILD SOURCE: the files of `asof tables` as DuckDB and hyparquet read them, row by row and type by type
// against `asof query`; the SQL of docs/scale.md runs.
import assert from 'node:assert';
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {DuckDBInstance} from '@duckdb/node-api';
import {parquetMetadata, parquetReadObjects} from 'hyparquet';
import {compressors} from 'hyparquet-compressors';

const [build, source, makeRows] = process.argv.slice(2).map((p) => path.resolve(p));
const demo = ['tests/data/demo/perf.data', '--symfs', 'tests/data/demo/symfs'];
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'asof-lake-'));
process.on('exit', () => fs.rmSync(scratch, {recursive: true, force: true}));
const asof = (...args) => execFileSync(path.join(build, 'asof'), args, {
  cwd: source, encoding: 'utf8', maxBuffer: 1 << 30, stdio: ['ignore', 'pipe', 'ignore'],
  env: {...process.env, ASOF_CACHE: 'never'},
});

const kTables = ['tracks', 'functions', 'calls', 'runs', 'gaps', 'events', 'pokes', 'poke_visits', 'text_lives', 'counters',
                 'text_versions', 'blocks', 'code', 'code_instructions'];
const lake = path.join(scratch, 'lake');
asof('tables', '-q', '-o', lake, ...demo);
asof('tables', '-q', '-o', lake, '--table', [...kTables, 'coverage'].join(','), ...demo);

const database = await DuckDBInstance.create(':memory:', {autoinstall_known_extensions: 'false'});
const duck = await database.connect();
const ask = async (sql) => (await duck.runAndReadAll(sql)).getRowObjectsJS();

// Values of either reader, and of JSON, as text: integers of any size, blobs in hexadecimal.
function plain(value) {
  if (value === null || value === undefined) return null;
  if (value instanceof Uint8Array || value?.bytes instanceof Uint8Array) return Buffer.from(value.bytes ?? value).toString('hex');
  return String(value);
}
const lines = (rows, columns) => rows.map((r) => JSON.stringify(columns.map((c) => plain(r[c])))).sort();

// Integers above 2^53 lose digits in JSON.parse: taken from the text.
const parse = (text) => JSON.parse(text.replace(/([:,])(-?\d{16,})(?=[,}])/g, '$1"$2"'));

async function ofHyparquet(folder) {
  const rows = [];
  for (const entry of fs.readdirSync(folder, {recursive: true})) {
    if (!entry.endsWith('.parquet')) continue;
    const bytes = fs.readFileSync(path.join(folder, entry));
    const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    const cpu = /cpu=(-?\d+)/.exec(entry);
    const columns = parquetMetadata(file).schema.slice(1);
    const blobs = columns.filter((c) => c.type === 'BYTE_ARRAY' && !c.converted_type).map((c) => c.name);
    for (const row of await parquetReadObjects({file, compressors, utf8: false})) {
      assert.ok(blobs.every((b) => row[b] === null || row[b] === undefined || row[b] instanceof Uint8Array), entry);
      rows.push(cpu ? {...row, cpu: BigInt(cpu[1])} : row);
    }
  }
  return rows;
}

let rows = 0;
for (const table of kTables) {
  const folder = path.join(lake, table);
  const want = asof('query', '-q', '--detail', 'insn', '--format', 'jsonl', `SELECT * FROM ${table}`, '-i', ...demo)
                   .split('\n').filter((l) => l).map(parse);
  const got = await ask(`SELECT * FROM read_parquet('${folder}/**/*.parquet', hive_partitioning = true)`);
  const columns = want.length ? Object.keys(want[0]) : [];
  const byDuck = lines(got, columns), byHyparquet = lines(await ofHyparquet(folder), columns);
  const expected = lines(want, columns);
  assert.deepStrictEqual(byDuck, expected, `${table}: DuckDB`);
  assert.deepStrictEqual(byHyparquet, expected, `${table}: hyparquet`);
  rows += want.length;
}
assert.ok(rows > 30000, `${rows} rows`);

// Types, order, and what statistics say.
const types = await ask(`SELECT name, type, converted_type FROM parquet_schema('${lake}/functions/data.parquet')`);
assert.deepStrictEqual(types.map((t) => t.type).filter((t) => t), ['INT64', 'BYTE_ARRAY', 'BYTE_ARRAY', 'BYTE_ARRAY', 'INT64', 'INT64', 'INT64', 'INT64', 'BYTE_ARRAY', 'BYTE_ARRAY']);
async function checkCalls(at) {
  const [out] = await ask(`SELECT count(*) n FROM (SELECT "begin" b, lag("begin") OVER () l FROM '${at}') WHERE b < l`);
  assert.equal(out.n, 0n, 'calls are in order of time');
  for (const c of await ask(`SELECT path_in_schema c, type t, stats_min_value lo, stats_max_value hi, stats_null_count n, num_values v FROM parquet_metadata('${at}')`)) {
    const [real] = await ask(`SELECT min("${c.c}") lo, max("${c.c}") hi, count(*) - count("${c.c}") n FROM '${at}'`);
    assert.equal(plain(c.n), plain(real.n), c.c);
    if (c.t === 'INT64') assert.deepEqual([plain(c.lo), plain(c.hi)], [plain(real.lo), plain(real.hi)], c.c);
  }
}
for (const cpu of fs.readdirSync(path.join(lake, 'calls'))) await checkCalls(`${lake}/calls/${cpu}/data.parquet`);

// Calls of what was decoded in shards, written in shards: the files are the table that one run writes, with its types.
const [plan, parts, whole, one, several] = ['plan', 'parts', 'whole.blocks', 'one', 'several'].map((n) => path.join(scratch, n));
asof('plan', '-q', '-o', plan, ...demo);
asof('decode', '-q', '--plan', plan, '--shard', '0-4/5', '--calls', '-o', parts);
asof('merge', '-q', plan, parts, '-o', whole);
asof('tables', '-q', '--table', 'calls', '-o', one, ...demo);
for (const k of [2, 0, 1]) asof('tables', '-q', '--shard', `${k}/3`, '--table', 'calls', '-o', several, whole);
const kCalls = (folder) => `FROM read_parquet('${folder}/calls/*/*.parquet', hive_partitioning = true)`;
const schema = async (folder) => (await ask(`DESCRIBE SELECT * ${kCalls(folder)}`)).map((c) => [c.column_name, c.column_type]);
assert.deepStrictEqual(await schema(several), await schema(one));
const callColumns = (await schema(one)).map(([name]) => name);
const oneRun = lines(await ask(`SELECT * ${kCalls(one)}`), callColumns);
assert.ok(oneRun.length > 1000, `${oneRun.length} calls`);
assert.deepStrictEqual(lines(await ask(`SELECT * ${kCalls(several)}`), callColumns), oneRun, 'shards: DuckDB');
assert.deepStrictEqual(lines(await ofHyparquet(`${several}/calls`), callColumns), oneRun, 'shards: hyparquet');
const shardFiles = fs.readdirSync(several, {recursive: true}).filter((f) => f.endsWith('.parquet'));
assert.ok(shardFiles.length >= 4, shardFiles.join(' '));
for (const file of shardFiles) await checkCalls(path.join(several, file));
rows += oneRun.length;

// Aggregates are sums of the rows.
const [sums] = await ask(`SELECT sum(calls) c, sum(self_instructions) i FROM '${lake}/agg_function/*/*.parquet'`);
const [want] = await ask(`SELECT count(*) c, sum(self_instructions) i FROM read_parquet('${lake}/calls/*/*.parquet', hive_partitioning = true) c
                          JOIN '${lake}/tracks/data.parquet' t ON t.id = c.track WHERE t.kind = 'cpu'`);
assert.deepEqual(sums, want);
const [edges] = await ask(`SELECT sum(calls) c FROM '${lake}/agg_edge/*/*.parquet'`);
assert.equal(plain(edges.c), plain(sums.c));
const [visits] = await ask(`SELECT sum(visits) v, (SELECT count(*) FROM '${lake}/blocks/*/*.parquet') b FROM '${lake}/coverage/data.parquet'`);
assert.equal(plain(visits.v), plain(visits.b));

// Names that are meant to harm their reader: as they are in `asof query`, without anything that commands a terminal or turns text
// around, and cut.
const hostile = path.join(scratch, 'hostile');
fs.mkdirSync(hostile);
execFileSync(path.join(build, 'tests/make_demo'), ['--hostile', hostile]);
const capture = [path.join(hostile, 'perf.data'), '--symfs', path.join(hostile, 'symfs')];
const harmful = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffd]/;
const kNames = ['functions', 'tracks', 'events', 'text_lives', 'text_versions', 'code', 'code_instructions'];
asof('tables', '-q', '-o', `${hostile}/lake`, '--table', kNames.join(','), ...capture);
let texts = 0;
for (const table of kNames) {
  const folder = path.join(hostile, 'lake', table);
  const got = await ask(`SELECT * FROM read_parquet('${folder}/**/*.parquet', hive_partitioning = true)`);
  const want = asof('query', '-q', '--detail', 'insn', '--format', 'jsonl', `SELECT * FROM ${table}`, '-i', ...capture)
                   .split('\n').filter((l) => l).map(parse);
  const columns = want.length ? Object.keys(want[0]) : [];
  assert.deepStrictEqual(lines(got, columns), lines(want, columns), `hostile ${table}: DuckDB`);
  assert.deepStrictEqual(lines(await ofHyparquet(folder), columns), lines(want, columns), `hostile ${table}: hyparquet`);
  for (const text of got.flatMap((row) => Object.values(row)).filter((v) => typeof v === 'string')) {
    assert.ok(!harmful.test(text), `${table}: ${JSON.stringify(text.slice(0, 200))}`);
    assert.ok(Buffer.byteLength(text) <= 4096 && !/bytes more\].*bytes more\]/.test(text), `${table}: a name of ${text.length}`);
    ++texts;
  }
}
assert.ok(texts > 1000, `${texts} texts`);

// Many rows, nulls, and texts, in several row groups; none at all.
for (const seed of [0, 1, 2, 3, 4, 5, 6]) {
  const folder = path.join(scratch, `rows${seed}`);
  fs.mkdirSync(folder);
  const at = path.join(folder, 'data.parquet');
  execFileSync(makeRows, [String(seed), at, `${folder}.jsonl`]);
  const columns = ['number', 'real', 'few', 'many', 'one', 'bytes', 'nothing'];
  const want = fs.readFileSync(`${folder}.jsonl`, 'utf8').split('\n').filter((l) => l).map((l) => JSON.parse(l));
  // In order, which sorting would hide.
  const text = (all) => all.map((r) => JSON.stringify(columns.map((c) => plain(r[c])))).join('\n');
  assert.ok(text(want) === text(await ask(`SELECT * FROM '${at}'`)), `seed ${seed}: DuckDB`);
  assert.ok(text(want) === text(await ofHyparquet(folder)), `seed ${seed}: hyparquet`);
  rows += want.length;
}

// What the documentation shows.
const docs = fs.readFileSync(path.join(source, 'docs/scale.md'), 'utf8');
const examples = [...docs.matchAll(/```sql\n([^]*?)```/g)].flatMap((m) => m[1].split(';')).filter((s) => s.trim());
assert.ok(examples.length >= 3);
for (const sql of examples) assert.ok((await ask(sql.replaceAll("'lake/", `'${lake}/`))).length > 0, sql);
console.log(`${rows} rows of ${kTables.length} tables alike in both readers, ${examples.length} examples`);
