"""An empty TLS context for plain HTTP: httpx's own takes 25 ms for each client."""

import ssl

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
