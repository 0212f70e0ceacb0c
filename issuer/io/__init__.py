"""Effects below the service, the relying party and the client: files, HTTP, keys, shared memory, the store."""
