"""Turns Debian's r-cran-janeaustenr package into sentences for train.py.

The package stores each novel as an R character vector of lines in a
lazy-load database: a sequence of big-endian lengths and zlib streams, each a
serialised R object. We need nothing of R but its strings (CHARSXP), so we
scan for them instead of depending on an R installation.
"""

import re
import struct
import zlib

NOVELS = 6
# A sentence ends at . ! ? (and a closing quote) before a capital or a quote,
# but not after a title.
SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])(?<!Mr\.)(?<!Mrs\.)(?<!Dr\.)(?<!St\.)|(?<=[.!?][\"'])) (?=[A-Z\"'])"
)
CHARSXP_ASCII = b"\x00\x04\x00\x09"


def _records(rdb: bytes):
    """Yields each decompressed object of a lazy-load database."""
    offset = 0
    while offset + 4 < len(rdb):
        stream = zlib.decompressobj()
        yield stream.decompress(rdb[offset + 4 :])
        offset = len(rdb) - len(stream.unused_data)


def _lines(record: bytes):
    """Yields the ASCII strings of one serialised R object, in order."""
    at = record.find(CHARSXP_ASCII)
    while at >= 0:
        (length,) = struct.unpack(">i", record[at + 4 : at + 8])
        if 0 <= length < 4096:
            yield record[at + 8 : at + 8 + length].decode("latin-1")
            at = record.find(CHARSXP_ASCII, at + 8 + length)
        else:
            at = record.find(CHARSXP_ASCII, at + 4)


def _paragraphs(lines):
    block = []
    for line in lines:
        if line.strip():
            block.append(line.strip())
        elif block:
            yield " ".join(block)
            block = []
    if block:
        yield " ".join(block)


def sentences(rdb_path: str) -> list[str]:
    """All sentences of the novels, in reading order, ASCII, one space apart."""
    with open(rdb_path, "rb") as f:
        records = [r for r in _records(f.read()) if len(r) > 100_000]
    assert len(records) == NOVELS, f"{len(records)} novels in {rdb_path}"
    out = []
    for record in records:
        for text in _paragraphs(_lines(record)):
            text = re.sub(r"\s+", " ", text.replace("_", "").replace("--", " - "))
            heading = text.isupper() or re.match(r"(?i)(chapter|volume|by jane)\b", text)
            if heading or len(text) < 20 or not text.isascii():
                continue
            for s in SENTENCE_END.split(text):
                s = s.strip()
                if s.count('"') % 2 == 1:
                    s = s.replace('"', "").strip()  # half a quotation reads badly alone
                if s:
                    out.append(s)
    return out
