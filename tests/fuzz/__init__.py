"""Fuzzing: cases of every kind of input from outside, each of which is accepted or refused by a clear error."""
