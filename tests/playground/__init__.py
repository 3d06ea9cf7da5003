"""Tests of the playground, in a browser."""
