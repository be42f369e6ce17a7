"""The Python module on the demo captures, compared with the program and with itself."""

import ast
import gc
import os
import re
import subprocess
import sys
import threading
import time
import unittest

import asof
import numpy

DATA = os.environ["ASOF_TEST_DATA"]
DEMO = f"{DATA}/demo/perf.data"
SYMFS = f"{DATA}/demo/symfs"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def open_demo():
    return asof.open(DEMO, symfs=SYMFS)


def printed(*arguments):
    """Words of each line of `asof decode`."""
    command = [os.environ["ASOF_BINARY"], "decode", DEMO, "--symfs", SYMFS, "--ns", "-F", "tid,cpu,time,ip,insn,insnlen,conf"]
    out = subprocess.run(command + list(arguments), capture_output=True, text=True, check=True).stdout
    return [" ".join(line.split()) for line in out.splitlines()]


def line_of(i):
    seconds = f"{i.time // 10**9}.{i.time % 10**9:09d}"
    return f"{i.tid} [{i.cpu:03d}] {seconds}: {i.ip:x} ilen: {i.length} insn: {i.bytes.hex(' ')} {i.confidence}"


class Captures(unittest.TestCase):
    def test_tells_what_it_is(self):
        c = open_demo()
        self.assertEqual((c.machine, c.kind), ("x86_64", "perf.data directory"))
        self.assertEqual([s.cpu for s in c.streams], [0, 1])
        self.assertTrue(all(re.match(r"[EI]-[A-Z]+-\d+", n.code) for n in c.notices))

    def test_errors(self):
        with self.assertRaises(asof.Error) as raised:
            asof.open("/no/such/file")
        self.assertEqual((raised.exception.code, raised.exception.where), ("E-FILE-101", "/no/such/file"))
        self.assertIsNone(raised.exception.offset)
        with self.assertRaises(asof.Error) as raised:
            asof.open(f"{DATA}/README.md")
        self.assertEqual((raised.exception.code, raised.exception.offset), ("E-FILE-102", 0))
        c = open_demo()
        self.assertRaises(ValueError, c.instructions, order="backwards")
        self.assertRaises(ValueError, c.instructions, cpu=[])
        self.assertRaises(TypeError, c.instructions, cpu="zero")
        self.assertRaises(TypeError, c.instructions, cpu=[0, "one"])
        self.assertRaises(ValueError, c.instructions, cpu=2**40)
        self.assertRaises(TypeError, c.instructions, jobs=-1)
        self.assertRaises(TypeError, c.instructions, time=5)
        self.assertRaises(TypeError, c.instructions, time=(0, "end"))
        self.assertRaises(TypeError, c.instruction_columns, limit=-1)
        with self.assertRaises(asof.Error) as raised:
            c.text_at(0, 0, 0)
        self.assertEqual(raised.exception.code, "E-FILE-091")

    def test_text_at_a_time(self):
        c = open_demo()
        self.assertEqual(len(c.changes), 10)
        for n, change in enumerate(c.changes):
            size = len(change.old)
            before = c.text_at(change.address, size, change.time - 1)
            after = c.text_at(change.address, size, change.time + 1)
            self.assertEqual((before.bytes, after.bytes), (change.old, change.new))
            self.assertTrue(before.known and after.known)
            self.assertEqual((after.certain, after.doubts), (True, bytes(size)))
            self.assertEqual((c.source(after.sources[0]).kind, c.source(after.sources[0]).id), ("poke", n))
            symbol = c.symbol(change.address, change.time)
            self.assertEqual(symbol.begin + symbol.offset, change.address)
            self.assertIn(symbol.name, [s.name for s in c.symbols(symbol.name)])
        module = c.text_at(0xFFFFFFFFC0000000, 4, c.changes[0].time)
        self.assertEqual((module.known, module.certain, module.doubts), (True, False, b"\1" * 4))
        hole = c.text_at(0x1000, 16, 0)
        self.assertFalse(hole.known or hole.certain)
        self.assertEqual(hole.sources, [0] * 16)
        self.assertIsNone(c.symbol(0x1000, 0))


class Flow(unittest.TestCase):
    def test_instructions_equal_the_program(self):
        c = open_demo()
        self.assertEqual([line_of(i) for i in c.instructions()], printed())
        self.assertEqual([line_of(i) for i in c.instructions(cpu=1)], printed("--cpu", "1"))
        self.assertEqual(
            [line_of(i) for i in c.instructions(time=(6_000_030_000, 6_000_050_000))], printed("--time", "6.00003,6.00005")
        )

    def test_records_outlive_iterator_and_capture(self):
        first = next(open_demo().instructions())
        gc.collect()
        self.assertEqual((first.ip, first.bytes.hex()), (0x401000, "f30f1efa"))
        iterator = open_demo().blocks()
        gc.collect()
        block = next(iterator)
        del iterator
        self.assertEqual(len(block.bytes), block.length)
        self.assertEqual((sum(block.lengths), len(block.lengths)), (block.length, block.count))

    def test_breaking_out(self):
        c = open_demo()
        for stop in (0, 1, 1500):
            for n, _ in enumerate(c.instructions(jobs=3)):
                if n == stop:
                    break
            self.assertEqual(n, stop)
        c.instructions()  # never read

    def test_blocks_gaps_events_calls(self):
        c = open_demo()
        instructions = sum(b.count for b in c.blocks())
        self.assertEqual(instructions, 61625)
        self.assertEqual([(g.code, g.cpu) for g in c.gaps()], [("E-LOST-103", 1)])
        self.assertGreater(sum(e.kind == "psb" for e in c.events()), 2)
        calls = list(c.calls())
        self.assertEqual(sum(k.self_instructions for k in calls), instructions)
        self.assertTrue(any(k.function == "vfs_read" for k in calls))
        self.assertTrue(all(k.tid is not None for k in c.calls(by_thread=True)))

    def test_one_iterator_two_threads(self):
        iterator = open_demo().instructions()
        seen, refused = [], []

        def read():
            while True:
                try:
                    seen.append(next(iterator).ip)
                except StopIteration:
                    return
                except ValueError:
                    refused.append(1)
                    time.sleep(0.001)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(seen), 61625)


class Columns(unittest.TestCase):
    TYPES = {
        "ip": numpy.uint64,
        "time": numpy.int64,
        "cpu": numpy.int32,
        "pid": numpy.int32,
        "tid": numpy.int32,
        "source": numpy.uint32,
        "version": numpy.uint32,
        "length": numpy.uint8,
        "branch": numpy.uint8,
        "confidence": numpy.uint8,
        "flags": numpy.uint8,
    }

    def test_equal_the_instructions(self):
        c = open_demo()
        columns = c.instruction_columns(cpu=0)
        arrays = {name: numpy.asarray(getattr(columns, name)) for name in self.TYPES}
        rows = list(c.instructions(cpu=0))
        self.assertEqual(len(columns), len(rows))
        for name, dtype in self.TYPES.items():
            self.assertEqual(arrays[name].dtype, dtype, name)
            self.assertEqual(arrays[name].shape, (len(rows),))
        for name in ("ip", "time", "cpu", "pid", "tid", "source", "version", "length"):
            self.assertEqual(arrays[name].tolist(), [getattr(i, name) for i in rows], name)
        names = ("certain", "proved", "equivalent", "ambiguous", "contradiction")
        self.assertEqual([names[n] for n in arrays["confidence"]], [i.confidence for i in rows])
        self.assertEqual(((arrays["flags"] & 1) != 0).tolist(), [i.taken for i in rows])

    def test_share_memory(self):
        columns = open_demo().instruction_columns(cpu=0)
        a, b = numpy.asarray(columns.ip), numpy.asarray(columns.ip)
        self.assertTrue(numpy.shares_memory(a, b))
        self.assertFalse(a.flags.owndata)
        self.assertFalse(a.flags.writeable)
        want = a.tolist()
        del columns, b
        gc.collect()
        self.assertEqual(a.tolist(), want)

    def test_are_bounded(self):
        c = open_demo()
        self.assertEqual(len(c.instruction_columns(limit=100)), 100)
        self.assertEqual(len(c.instruction_columns(limit=0)), 0)
        none = c.instruction_columns(time=(0, 1))
        self.assertEqual((len(none), numpy.asarray(none.ip).shape), (0, (0,)))
        ip = numpy.asarray(c.instruction_columns(limit=100).ip)
        self.assertEqual(ip.tolist(), [i.ip for i, _ in zip(c.instructions(), range(100))])

    def test_decoding_leaves_other_threads_running(self):
        # With this interval no thread is forced to give up the GIL: the other one runs only if decoding
        # releases it.
        c = open_demo()
        turns, done = [0], threading.Event()

        def count():
            while not done.is_set():
                turns[0] += 1
                time.sleep(0)

        counter = threading.Thread(target=count)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        try:
            counter.start()
            before = turns[0]
            c.instruction_columns()
            self.assertGreater(turns[0], before)
        finally:
            sys.setswitchinterval(interval)
            done.set()
            counter.join()


class Documents(unittest.TestCase):
    def test_stubs_name_what_there_is(self):
        stubs = ast.parse(read(os.path.join(os.path.dirname(asof.__file__), "__init__.pyi")))
        classes = {n.name: n for n in stubs.body if isinstance(n, ast.ClassDef)}
        for name in asof.__all__:
            if name in ("open", "version", "Error"):
                continue
            members, todo = set(), [name]
            while todo:
                c = classes[todo.pop()]
                members |= {n.name for n in c.body if isinstance(n, ast.FunctionDef)}
                todo += [b.id for b in c.bases if isinstance(b, ast.Name)]
            real = {n for n in vars(getattr(asof, name)) if not n.startswith("_") or n == "__len__"}
            self.assertEqual(members, real, name)
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(asof.__file__), "py.typed")))

    def test_examples_run(self):
        text = read(os.path.join(os.environ["ASOF_SOURCE"], "docs/python.md"))
        blocks = re.findall(r"```python\n(.*?)```", text, re.S)
        self.assertTrue(blocks)
        code = "\n".join(blocks).replace('"perf.data"', f'"{DEMO}", symfs="{SYMFS}"')
        exec(compile(code, "docs/python.md", "exec"), {"print": lambda *a, **k: None})


if __name__ == "__main__":
    unittest.main()
