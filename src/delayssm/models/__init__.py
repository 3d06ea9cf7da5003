"""Models: a backbone with what turns its inputs and outputs into those of a task."""
