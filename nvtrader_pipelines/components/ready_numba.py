"""Numba after its first compilation, whose .4 CPU seconds workers forked from a process with this module save."""

from numba import njit

njit(lambda: None)()
