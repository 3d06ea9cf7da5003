"""Processes that are killed again and again, and what they leave behind."""
