"""Decode Intel PT and Arm CoreSight against the code that was in memory as of the instant it ran.

>>> import asof
>>> capture = asof.open("perf.data")
>>> for i in capture.instructions(cpu=0):
...     print(i.time, hex(i.ip), i.bytes.hex(), i.confidence)

Times are nanoseconds of perf's clock; None where unknown. docs/python.md has more.
"""

from asof._asof import (
    Block,
    Call,
    Capture,
    Change,
    Columns,
    Error,
    Event,
    Gap,
    Instruction,
    Notice,
    Source,
    Stream,
    Symbol,
    TextImage,
    open,
    version,
)

__version__ = version()
__all__ = [
    "Block",
    "Call",
    "Capture",
    "Change",
    "Columns",
    "Error",
    "Event",
    "Gap",
    "Instruction",
    "Notice",
    "Source",
    "Stream",
    "Symbol",
    "TextImage",
    "open",
    "version",
]
