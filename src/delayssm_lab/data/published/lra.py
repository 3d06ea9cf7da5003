"""What the data sets of the Long Range Arena release have in common: one archive with all of them."""

from delayssm_lab.data.published.dataset import Download

FOLDER = "lra"
PAGE = "https://github.com/google-research/long-range-arena"
LICENCE = "Apache-2.0"
#: About; the release comes without a checksum.
SIZE = 7_700_000_000
DOWNLOADS = (
    Download("lra_release.gz", "https://storage.googleapis.com/long-range-arena/lra_release.gz", checksum=None),
)
