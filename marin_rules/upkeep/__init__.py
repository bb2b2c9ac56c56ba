"""What changes stored state on request."""
