"""Advertises a site, by cron: a zipapp of the standard library for Python 3.9."""
