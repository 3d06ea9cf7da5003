"""Tasks: how samples are made and how answers are scored."""
