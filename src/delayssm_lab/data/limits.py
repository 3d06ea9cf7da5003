"""Limits of what is read from outside. A file beyond its limit is refused with an error that names the file.

Compressed files grow up to a thousandfold, and a header can announce any size. Each limit leaves room above the largest
published file of its kind. SECURITY.md lists them.
"""

from __future__ import annotations

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

#: Bytes that one request reads from a file or a decompressor.
CHUNK = 64 * KIB

# Archives and folders

#: Files in a folder or archive. Each level of Pathfinder has 200,000, and its release has many levels.
ENTRIES = 5_000_000
#: Bytes of the name of one file in an archive. Published names have fewer than 100.
NAME_BYTES = 1 * KIB
#: Bytes of all names in an archive together.
NAMES_BYTES = 512 * MIB
#: Bytes of a tar header that extends another one, which holds a long name and times.
TAR_HEADER_BYTES = 16 * KIB
#: Headers that extend the same entry of a tar archive. Programs write one or two.
TAR_EXTENSIONS = 8
#: Bytes of the directory of a zip archive, which is loaded as a whole.
ZIP_DIRECTORY_BYTES = 256 * MIB
#: Uncompressed bytes of an archive. It is read in pieces, so that this limits the time and not the memory.
ARCHIVE_BYTES = 128 * GIB
#: Bytes of a download. The largest published file has about 7.7 GB.
DOWNLOAD_BYTES = 16 * GIB

# Files that are read in pieces or line by line, so that their limit does not matter for memory

#: Bytes of a file. The largest one has the 147,086 training pairs of AAN, two papers each.
STREAM_BYTES = 32 * GIB
#: Bytes of a line of ListOps. The longest published line has about 13,000.
EXPRESSION_BYTES = 1 * MIB
#: Characters of a line of AAN, and of one of its texts, which may span lines. A line holds two papers.
PAPER_CHARACTERS = 16 * MIB

# Files that are read as a whole

#: Bytes of an idx file. The largest of MNIST has 47 million.
IDX_BYTES = 64 * MIB
#: Bytes of a batch of CIFAR-10. Each published one has 31 million.
BATCH_BYTES = 64 * MIB
#: Bytes of a recording of Speech Commands. The published ones have at most 32,044 for one second.
CLIP_BYTES = 256 * KIB
#: Bytes of a review of IMDB. The longest has 13,704. All 50,000 are kept in memory.
REVIEW_BYTES = 32 * KIB
#: Bytes of a file of a WFDB record. The largest of BIDMC has 840,014. All 159 are kept in memory.
RECORD_BYTES = 2 * MIB
#: Bytes of an image of Pathfinder. The largest has 128 x 128 pixels of one byte.
IMAGE_BYTES = 256 * KIB
#: Bytes of a list of clips, images or checksums. The longest, of Speech Commands, has 11,005 lines.
LIST_BYTES = 16 * MIB
#: Bytes of the description of a prepared data set.
ABOUT_BYTES = 16 * MIB

# Numbers

#: Absolute value of a reading of a monitor. Means of larger ones could overflow.
READING = 1e6
#: Smallest and largest gain of a signal, and the absolute value of its baseline: samples stay within float32.
GAIN_LOWEST = 1e-6
GAIN_HIGHEST = 1e12
BASELINE = 1 << 31
#: Samples that one command generates. The largest published data sets have 200,000.
GENERATED = 10_000_000
#: Seeds are 63-bit numbers, which every generator of random numbers accepts.
SEED = (1 << 63) - 1
