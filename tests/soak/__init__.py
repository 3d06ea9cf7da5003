"""Many threads for a long time: ``python -m tests.soak --minutes 20``."""
