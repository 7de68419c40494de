"""The demonstration behind `./demo`: a server, three sites on this machine, real jobs, and a summary of the run."""
