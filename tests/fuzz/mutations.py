"""Mutations of bytes and of sets of files, drawn by hypothesis."""

import gzip
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import PurePosixPath

from hypothesis import strategies as st

Files = dict[str, bytes]
Mutation = Callable[[st.DataObject, bytes], bytes]

EXTREMES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
NUMBERS = [b"0", b"-1", b"1e-300", b"1e300", b"1e999", b"nan", b"inf", b"65536", b"-32769", b"9" * 40, b"9" * 5000]
TOKENS = [
    b"", b"\0", b"\n", b"\r", b"\t", b'"', b",", b" ", b"/", b"../", b"-", b"-1", b"nan", b"inf", b"1e999", b"0",
    b"9" * 40, b"9" * 5000, b"\xff\xfe", b"\xed\xa0\x80", "\N{ARABIC-INDIC DIGIT THREE}".encode(), "\u2028".encode(),
    b"PK\3\4", b"\x1f\x8b", b"\x93NUMPY", b"#", b"=", b"%s", b"(", b"[MAX ",
]  # fmt: skip


def _position(data: st.DataObject, content: bytes) -> int:
    """Draw a position, often near one of the ends, where the headers are."""
    last = len(content)
    near = st.integers(0, min(last, 64))
    return data.draw(st.one_of(near, near.map(lambda i: last - i), st.integers(0, last)))


def flip(data: st.DataObject, content: bytes) -> bytes:
    """Flip one bit."""
    if not content:
        return content
    at = min(_position(data, content), len(content) - 1)
    return content[:at] + bytes([content[at] ^ 1 << data.draw(st.integers(0, 7))]) + content[at + 1 :]


def truncate(data: st.DataObject, content: bytes) -> bytes:
    """Cut off the end or the beginning."""
    at = _position(data, content)
    return content[:at] if data.draw(st.booleans()) else content[at:]


def insert(data: st.DataObject, content: bytes) -> bytes:
    """Insert a few bytes, which may mean something to a reader."""
    at = _position(data, content)
    return content[:at] + data.draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=8))) + content[at:]


def replace(data: st.DataObject, content: bytes) -> bytes:
    """Replace a field, as separated in texts, by bytes that may mean something to a reader."""
    separator = data.draw(st.sampled_from([b" ", b"\t", b"\n", b","]))
    fields = content[:4000].split(separator)
    fields[data.draw(st.integers(0, len(fields) - 1))] = data.draw(st.sampled_from(TOKENS))
    return separator.join(fields) + content[4000:]


def renumber(data: st.DataObject, content: bytes) -> bytes:
    """Replace a number in a text by an extreme or impossible one."""
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", content[:4000]))
    if not numbers:
        return content
    number = numbers[data.draw(st.integers(0, len(numbers) - 1))]
    return content[: number.start()] + data.draw(st.sampled_from(NUMBERS)) + content[number.end() :]


def repeat(data: st.DataObject, content: bytes) -> bytes:
    """Repeat a block, up to many times."""
    begin, end = sorted((_position(data, content), _position(data, content)))
    block = content[begin:end]
    times = data.draw(st.sampled_from([1, 2, 1000]))
    return content[:end] + block * min(times, 2_000_000 // max(1, len(block))) + content[end:]


def overwrite(data: st.DataObject, content: bytes) -> bytes:
    """Overwrite an integer of one to eight bytes with an extreme value."""
    at, width = _position(data, content), data.draw(st.sampled_from([1, 2, 4, 8]))
    number = data.draw(st.sampled_from(EXTREMES)) % 256**width
    new = number.to_bytes(width, data.draw(st.sampled_from(["little", "big"])))
    return content[:at] + new + content[at + width :]


def zero(data: st.DataObject, content: bytes) -> bytes:
    """Overwrite a block with zeros, as a lost sector does."""
    begin, end = sorted((_position(data, content), _position(data, content)))
    return content[:begin] + bytes(end - begin) + content[end:]


def oversize(data: st.DataObject, content: bytes) -> bytes:
    """Append many bytes, which compress well."""
    return content + data.draw(st.sampled_from([b"\0", b"a", b"9", b"\n", b"\t"])) * 3_000_000


BINARY: list[Mutation] = [flip, truncate, insert, repeat, overwrite, zero, oversize]
TEXT: list[Mutation] = [flip, truncate, insert, repeat, zero, oversize, replace, replace, *[renumber] * 5]


def mutate(data: st.DataObject, content: bytes, most: int = 3) -> bytes:
    """Apply one to `most` mutations."""
    mutations = TEXT if _is_text(content) else BINARY
    for mutation in data.draw(st.lists(st.sampled_from(mutations), min_size=1, max_size=most)):
        content = mutation(data, content)
    return content


def _is_text(content: bytes) -> bool:
    return content[:1000].isascii() and b"\0" not in content[:1000]


def _choose(data: st.DataObject, files: Files) -> str:
    """Choose a file of any kind: of few headers and many images, either is as likely."""
    kind = data.draw(st.sampled_from(sorted({PurePosixPath(name).suffix for name in files})))
    return data.draw(st.sampled_from([name for name in sorted(files) if PurePosixPath(name).suffix == kind]))


def mutate_files(data: st.DataObject, files: Files) -> Files:
    """Mutate, swap, rename, remove or add files, or replace one number in a text."""
    files, texts = dict(files), {name: content for name, content in files.items() if _is_text(content)}
    action = data.draw(st.sampled_from(["mutate"] * 5 + ["renumber"] * 5 + ["swap", "rename", "remove", "add"]))
    name = _choose(data, texts or files) if action == "renumber" else _choose(data, files)
    other = data.draw(st.sampled_from(sorted(files)))
    if action == "renumber":
        files[name] = renumber(data, files[name])
    elif action == "mutate":
        if name.endswith(".gz") and data.draw(st.booleans()):
            files[name] = gzip.compress(mutate(data, gzip.decompress(files[name])), 1)
        else:
            files[name] = mutate(data, files[name])
    elif action == "swap":
        files[name], files[other] = files[other], files[name]
    elif action == "remove":
        del files[name]
    else:
        new = mutate(data, name.encode(), 1)[:200].decode(errors="replace").replace("\0", "0").strip("/.")
        parts = [part[:100] for part in new.split("/") if part.strip(".")] or ["x"]
        files["/".join(parts)] = files.pop(name) if action == "rename" else files[name]
    return files


def repair_png(content: bytes) -> bytes:
    """Make the checksums of all chunks of an image right, so that readers look at what is inside."""
    repaired, at = content[:8], 8
    while at + 12 <= len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        chunk = content[at + 4 : at + 8 + length]
        repaired += content[at : at + 4] + chunk + struct.pack(">I", zlib.crc32(chunk))
        at += 12 + length
    return repaired


def repair_tar(content: bytes) -> bytes:
    """Make the checksums of all headers of a tar archive right."""
    repaired = bytearray(content)
    for at in range(0, len(content) - 511, 512):
        block = repaired[at : at + 512]
        if block[257:262] == b"ustar":
            blanked = block[:148] + b" " * 8 + block[156:]
            repaired[at + 148 : at + 156] = b"%06o\0 " % sum(blanked)
    return bytes(repaired)
