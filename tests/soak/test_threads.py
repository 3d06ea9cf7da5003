"""A short soak."""

from pathlib import Path

from tests.soak.threads import STREAMS, soak


def test_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    tokens, files = soak(3, tmp_path)
    assert tokens >= 300 * sum(rows for rows, _ in STREAMS)
    assert files >= 3 * len(STREAMS)
