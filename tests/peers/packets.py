#!/usr/bin/env python3
"""`asof packets` line by line against other listers: packets.py ASOF CAPTURE...

A perf.data with Intel PT is compared with `perf script -D`, a bundle.json of whole streams of Intel PT with libipt's ptdump, a
snapshot of CoreSight trace (a folder with snapshot.ini) with OpenCSD's trc_pkt_lister, buffer by buffer: as many packets, at the same places, of the same kinds, with every value
that the other lister prints. One line for each capture; status 1 if anything differs. What is not compared: what OpenCSD
reads between bytes that are no packet and the next sync point, where asof goes on; PAD packets and padding.
"""
import collections
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

NO_PACKETS = {"LOST", "CUT", "PADDING", "PAD"}


def run(arguments, **more):
    return subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace",
                          check=False, **more).stdout


def own_packets(asof, capture):
    streams = collections.OrderedDict()
    lines = run([asof, "packets", capture, "-q", "--format", "jsonl", "--file-offsets"]).splitlines()
    for line in lines:
        packet = json.loads(line)
        if packet["packet"] not in NO_PACKETS:
            streams.setdefault(packet["stream"], []).append(packet)
    return streams


def number(value):
    return int(value, 16) if isinstance(value, str) and value.startswith("0x") else value


def values_of(packet):
    return {key: number(value) for key, value in packet.get("fields", {}).items()}


class Result:
    def __init__(self):
        self.compared = 0
        self.different = []

    def expect(self, same, what, theirs, own):
        if not same:
            self.different.append(f"{what}: {theirs} | {json.dumps(own)}")


# ---- Intel PT: perf script -D ----

def perf_packets(capture):
    """By CPU or thread: offset in the stream, name, rest of the line."""
    streams, key, begin = {}, None, 0
    for line in run(["perf", "script", "-D", "-i", capture]).splitlines():
        piece = re.search(r"PERF_RECORD_AUXTRACE size: \S+ +offset: (\w+) .*tid: (-?\d+) +cpu: (-?\d+)", line)
        if piece:
            key = "cpu" + piece[3] if piece[3] != "-1" else "tid" + piece[2]
            begin = int(piece[1], 16)
            continue
        if not line.startswith("."):
            key = None
        packet = re.match(r"\. +([0-9a-f]+): +(?:[0-9a-f]{2} )+ *(\S.*)?$", line)
        if key is None or not packet or not packet[2]:
            continue
        name, _, rest = packet[2].partition(" ")
        if name not in ("PAD", "Bad"):
            streams.setdefault(key, []).append((begin + int(packet[1], 16), name, rest))
    return streams


def same_pt(name, rest, packet):
    """perf writes numbers in hexadecimal, names with other letters, and what PIP has as it is encoded."""
    own = packet["packet"].upper()
    if name.upper() != re.sub(r"^TNT\..*", "TNT", own):
        return False
    values = values_of(packet)
    if name == "TNT":
        return rest.split(" ")[0] == values["tnt"]
    if "no ip" in rest:
        return values.get("ip") == "suppressed"
    numbers = [int(n, 16) for n in re.findall(r"0x([0-9a-f]+)", rest)]
    numbers += [int(n) for n in re.findall(r":(\d+)", rest)]
    if name == "PIP":
        numbers[0] <<= 5
        numbers += [int(n) for n in re.findall(r"NR=(\d)", rest)]
    if name == "MODE.Exec":
        numbers.append(int(rest.split(" ")[-1]))
    return all(n in values.values() for n in numbers)


def compare_perf(asof, capture, result):
    theirs, own = perf_packets(capture), own_packets(asof, capture)
    by_offset = {name: {p["offset"]: p for p in list_} for name, list_ in own.items()}
    for stream in sorted(set(theirs) | set(own)):
        result.expect(len(theirs.get(stream, [])) == len(own.get(stream, [])), f"{stream}: packets",
                      len(theirs.get(stream, [])), len(own.get(stream, [])))
        for offset, name, rest in theirs.get(stream, []):
            result.compared += 1
            packet = by_offset.get(stream, {}).get(offset)
            result.expect(packet is not None and same_pt(name, rest, packet), f"{stream} {offset:#x}",
                          f"{name} {rest}", packet)


# ---- Intel PT: ptdump ----

def same_dumped(name, rest, packet):
    if name != packet["packet"].lower():
        return False
    values = values_of(packet)
    if name.startswith("tnt"):
        return rest.replace("!", "T").replace(".", "N") == values["tnt"]
    if "<suppressed>" in rest:
        return values.get("ip") == "suppressed"
    address = re.search(r"\bip +([0-9a-f]+)$", rest)
    if address:
        return int(address[1], 16) == values["ip"]
    if name.startswith("mode"):
        return all(values[word] == 1 for word in re.findall(r"cs\.[ld]|intx|if", rest))
    numbers = [int(n, 16) for n in re.findall(r"\b[0-9a-f]+\b", rest.split("   ")[0])]
    return all(n in values.values() for n in numbers) and (name != "pip" or values["nr"] == int(", nr" in rest))


def compare_ptdump(asof, capture, result):
    with open(capture, encoding="utf-8") as file:
        streams = json.load(file)["streams"]
    own = list(own_packets(asof, capture).values())
    for stream, packets in zip(streams, own):
        trace = os.path.join(os.path.dirname(capture), stream["file"])
        theirs = [line.split(None, 2) for line in run(["ptdump", "--no-pad", "--lastip", trace]).splitlines()]
        result.expect(len(theirs) == len(packets), f"{stream['file']}: packets", len(theirs), len(packets))
        for line, packet in zip(theirs, packets):
            result.compared += 1
            same = int(line[0], 16) == packet["offset"] and same_dumped(line[1], (line + [""])[2].strip(), packet)
            result.expect(same, stream["file"], " ".join(line), packet)


# ---- CoreSight: trc_pkt_lister ----

KINDS = [(r"I_ASYNC", "A-Sync"), (r"I_TRACE_INFO", "Trace-Info"), (r"I_TRACE_ON", "Trace-On"),
         (r"I_OVERFLOW", "Overflow"), (r"I_DISCARD", "Discard"), (r"I_IGNORE", "Ignore"), (r"I_EVENT", "Event"),
         (r"I_TS_MARKER", "Timestamp-Marker"), (r"I_TIMESTAMP", "Timestamp"), (r"I_EXCEPT_RTN", "Exception-Return"),
         (r"I_EXCEPT", "Exception"), (r"I_CTXT", "Context"), (r"I_COMMIT", "Commit"), (r"I_MISPREDICT", "Mispredict"),
         (r"I_TRANS_ST", "Transaction-Start"), (r"I_TRANS_COMMIT", "Transaction-Commit"), (r"I_TRANS_FAIL", "Exception"),
         (r"I_NOT_SYNC|NOTSYNC", "NOSYNC"), (r"I_CANCEL_F(\d)", "Cancel.F{}"), (r"I_CCNT_F(\d)", "Cycle-Count.F{}"),
         (r"I_ATOM_F(\d)", "Atom.F{}"), (r"I_Q", "Q"), (r"I_ADDR_CTXT_L_(\d+)IS\d", "Address.{}.Context"),
         (r"I_ADDR_L_(\d+)IS\d", "Address.{}"), (r"I_ADDR_S_IS\d", "Address.Short"), (r"I_ADDR_MATCH", "Address.Exact"),
         (r"I_SRC_ADDR_L_(\d+)IS\d", "Source-Address.{}"), (r"I_SRC_ADDR_S_IS\d", "Source-Address.Short"),
         (r"I_SRC_ADDR_MATCH", "Source-Address.Exact")]

# What is in a line, by asof's names of fields; hexadecimal.
FIELDS = [("address", r"Addr=0x(\w+)"), ("payload", r"~\[0x(\w+)\]"), ("cid", r"CID=0x(\w+)"), ("vmid", r"VMID=0x(\w+)"),
          ("timestamp", r"Updated val = 0x(\w+)"), ("info", r"INFO=0x(\w+)"), ("cc_threshold", r"CC_THRESHOLD=0x(\w+)"),
          ("cycles", r"Count=0x(\w+)"), ("elements", r"(?:Cancel|Commit)\((\d+)\)"), ("el", r"AArch\d+, ?EL(\d)"),
          ("is", r"^I_(?:SRC_)?ADDR\w*IS(\d)"), ("entry", r"ADDR_MATCH.*\[(\d)\]")]


def etm4_name(kind):
    for pattern, name in KINDS:
        found = re.fullmatch(pattern, kind)
        if found:
            return name.format(*found.groups())
    return None


def same_etm4(line, packet, values):
    kind, _, rest = line.partition(" :")
    name = etm4_name(kind)
    if name != packet["packet"]:
        return False
    for field, pattern in FIELDS:
        found = re.search(pattern, line)
        # A count of cycles that the unit does not know: OpenCSD prints 0.
        if found and values.get(field) != int(found[1], 16) and values.get(field) != "unknown":
            return False
    if kind.startswith("I_ATOM") and rest.split(";")[1].strip() != values["atoms"]:
        return False
    state = re.search(r"(AArch\d+), ?EL\d, (NS|S)\b", line)
    if state and (values["state"], values["ns"]) != (state[1], int(state[2] == "NS")):
        return False
    if kind == "I_EXCEPT":
        theirs = rest.split(";")[1].strip().lower().replace("inst ", "instruction ")
        own = values["name"].lower()
        return theirs == own and values.get("branch_target", False) == ("Match Prev" in rest)
    transaction = re.search(r"TSTATE\.(\d)", line)
    return not transaction or values.get("in_transaction", False) == (transaction[1] == "1")


def same_arm(line, packet):
    values = values_of(packet)
    if "meaning" in values:  # ETMv3, PTM: OpenCSD's words
        return line.partition(";")[2].strip().rstrip(";").strip() == values["meaning"]
    return same_etm4(line, packet, values)


def listed_by_opencsd(folder, source, frames):
    """By trace ID; stretches that are not synchronised are one line."""
    streams, log = {}, ""
    with tempfile.TemporaryDirectory() as place:
        log = run(["trc_pkt_lister", "-ss_dir", os.path.abspath(folder), "-src_name", source, "-logstdout"] + frames, cwd=place)
    no_cpus = re.findall(r"Protocol printer (?:STM|ITM)\S* on Trace ID 0x([0-9a-f]+)", log)
    for line in log.splitlines():
        found = re.match(r"Idx:(\d+); ID:([0-9a-f]+);\t(.*)", line)
        if not found or not re.match(r"\w+ ?:", found[3]):
            continue
        packets = streams.setdefault(found[2], [])
        unsynchronised = "NOT_SYNC" in found[3] or found[3].startswith("NOTSYNC")
        if not (unsynchronised and packets and packets[-1][2]):
            packets.append((int(found[1]), found[3].rstrip(), unsynchronised))
    return [list_ for trace_id, list_ in streams.items() if trace_id not in no_cpus]


def is_near(place, packet, dstream):
    """OpenCSD counts without the headers of DSTREAM's blocks."""
    return dstream or 0 <= packet["file_offset"] - place < 32


def pairs(theirs, own, dstream):
    """Line by line; from bytes that are no packet to the next sync point of asof there are none of OpenCSD."""
    rest = iter(theirs)
    bad = False
    for packet in own:
        if packet["packet"] == "BAD":
            bad = True
            continue
        for place, line, _ in rest:
            if bad and not (line.startswith(("I_ASYNC", "A_SYNC", "ASYNC")) and is_near(place, packet, dstream)):
                continue
            yield (place, line), packet
            break
        else:
            yield ("end", "no packet"), packet
        bad = False
    for place, line, _ in rest:
        if not bad:
            yield (place, line), None


def compare_opencsd(asof, folder, result):
    trace = configparser.ConfigParser(strict=False, interpolation=None)
    trace.read(os.path.join(folder, "trace.ini"))
    buffers = trace["trace_buffers"]["buffers"].split(",")
    names = [trace[b.strip()]["name"] for b in buffers if b.strip()]
    own = own_packets(asof, folder)
    for source in names:
        mine = [list_ for name, list_ in own.items() if (":" + source) in name or ":" not in name]
        dstream = source.startswith("DSTREAM")
        frames = ["-dstream_format"] if dstream else []
        for theirs in listed_by_opencsd(folder, source, frames):
            # Its place is that of the packet's frame, or of the first byte of this source in it.
            first = theirs[0][0]
            fits = [l for l in mine if 0 <= l[0]["file_offset"] - first < 16 and same_arm(theirs[0][1], l[0])]
            if not fits:
                result.expect(False, source, theirs[0], "no such stream")
                continue
            packets = fits[0]
            for (place, line), packet in pairs(theirs, packets, dstream):
                result.compared += 1
                near = packet is not None and place != "end" and is_near(place, packet, dstream)
                result.expect(near and same_arm(line, packet), f"{source} {place}", line, packet)


def main():
    asof, different = sys.argv[1], False
    for capture in sys.argv[2:]:
        snapshot = os.path.exists(os.path.join(capture, "snapshot.ini"))
        peer = "trc_pkt_lister" if snapshot else "ptdump" if capture.endswith(".json") else "perf"
        if shutil.which(peer) is None:
            print(f"{capture}: skipped, {peer} is not installed")
            continue
        result = Result()
        {"perf": compare_perf, "ptdump": compare_ptdump, "trc_pkt_lister": compare_opencsd}[peer](asof, capture, result)
        print(f"{capture}: {peer}: {result.compared} packets, {len(result.different)} different")
        for line in result.different[:5]:
            print("  " + line[:300])
        different = different or bool(result.different)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
