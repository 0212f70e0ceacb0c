"""Settings, the log stream and background tasks: the parts that every other room of the service uses."""
