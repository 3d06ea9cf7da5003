"""Fuzzing: random damage, of which every outcome but an accepted input or a clear error is a failure."""
