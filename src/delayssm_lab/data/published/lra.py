"""Constants of the Long Range Arena release, one archive that contains several data sets."""

from delayssm_lab.data.published.dataset import Download

FOLDER = "lra"
PAGE = "https://github.com/google-research/long-range-arena"
LICENCE = "Apache-2.0"
#: Approximate size in bytes. No checksum is published.
SIZE = 7_700_000_000
DOWNLOADS = (
    Download("lra_release.gz", "https://storage.googleapis.com/long-range-arena/lra_release.gz", checksum=None),
)
