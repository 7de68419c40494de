#!/usr/bin/env python3
"""A program with a fault: it divides by the number of reads in an empty sample, and Python ends with 1."""

READS = []


def mean_length(reads):
    return sum(len(read) for read in reads) / len(reads)


print("aligning", len(READS), "reads")
print("mean length", mean_length(READS))
