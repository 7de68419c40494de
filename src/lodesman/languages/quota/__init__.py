"""Resource quota sets of Grid Engine: limits on jobs together, by user, project, PE, queue, host and job class."""
