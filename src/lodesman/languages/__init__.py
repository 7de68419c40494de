"""Texts and their values: descriptions of jobs, ClassAds, Grid Engine's words, job classes, quota sets.

Decisions: docs/adr/README.md, Languages.
"""
