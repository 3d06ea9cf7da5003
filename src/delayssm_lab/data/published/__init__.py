"""Published data sets: where they can be downloaded, and how their files are verified and read."""
