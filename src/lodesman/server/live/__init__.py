"""What the event loop of the hot process keeps."""
