"""$JOBSTATUS: what a job says to its machine, so that a site can vacate the right one (WLCG/HEPiX draft 0.9). It travels."""
