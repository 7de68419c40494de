"""What the background process does: direct, launch, census, refresh, retention, reconciler; each a `tick(now)`."""
