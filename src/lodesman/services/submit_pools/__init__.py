"""SubmitPools as a service: refreshed in passes, listed, cleaned up, looked up at each claim (RFC #7)."""
