"""Effects that the service, the relying party and the client share: files, HTTP, keys, shared memory, the store."""
