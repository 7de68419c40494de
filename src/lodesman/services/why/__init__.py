"""Why jobs, pilots and queues wait: the chain from a job to a pilot, its verdict, and the main reason of each task queue."""
