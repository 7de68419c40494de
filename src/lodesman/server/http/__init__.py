"""HTTP: decode, authorise, call a service, encode."""
