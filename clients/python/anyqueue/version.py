"""The release of this client, which the service is told."""

VERSION = "0.1.0"
