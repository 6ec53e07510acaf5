//! Why the service does not start.

use std::fmt;
use std::net::SocketAddr;

/// Why the service does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// The address can be reached from other machines, and no token is required.
    Open(SocketAddr),
    /// The address can be reached from other machines without TLS: tokens and tasks would cross the network
    /// for all to read.
    Plain(SocketAddr),
    /// The address of the listener cannot be determined.
    Io(std::io::Error),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(address) => write!(
                f,
                "{address} can be reached from other machines, and whoever reaches it could push, take and delete messages: listen on 127.0.0.1 or \
                 [::1], or require a token: `anyqueue tokens create` makes one"
            ),
            Self::Plain(address) => write!(
                f,
                "{address} can be reached from other machines, and without TLS whoever is on the way could read and change everything, tokens too: give it a \
                 certificate, or listen on 127.0.0.1 or [::1]; behind a proxy that speaks TLS, say that it may be insecure"
            ),
            Self::Io(error) => write!(f, "the listener has no address: {error}"),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(_) | Self::Plain(_) => None,
            Self::Io(error) => Some(error),
        }
    }
}
