"""What is configured, and what every room of the service runs on: settings, the log stream, background tasks."""
