"""Advertises a site: a program of its own that runs at the site, by cron. One zipapp, standard library, Python 3.9."""
