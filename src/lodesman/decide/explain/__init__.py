"""Why jobs, pilots and CE queues wait: facts, verdict, suggestion."""
