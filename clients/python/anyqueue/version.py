"""The version of this client, which is reported to the service."""

VERSION = "0.1.0"
