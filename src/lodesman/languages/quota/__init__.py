"""Resource quota sets of Grid Engine: limits on what jobs use together, by user, project, PE, queue, host and job class."""
