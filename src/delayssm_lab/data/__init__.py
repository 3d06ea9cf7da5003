"""Data sets: reading published files, generating data, and the arrays that both become."""
