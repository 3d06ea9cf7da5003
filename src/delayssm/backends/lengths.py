"""Lengths for which Fourier transforms are fast."""

import functools


@functools.lru_cache(maxsize=1024)
def fast_length(n: int) -> int:
    """Return the smallest multiple of 16 that is at least n and has no prime factor above 5.

    Without the factor 16, odd lengths such as 3^7 would qualify, and real transforms of odd length take
    several times longer.
    """
    size = max(16, -(-n // 16) * 16)
    while not _smooth(size):
        size += 16
    return size


def _smooth(n: int) -> bool:
    for prime in (2, 3, 5):
        while n % prime == 0:
            n //= prime
    return n == 1
