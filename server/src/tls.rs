//! Encrypted connections.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyqueue::{Error, ErrorKind, Result};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The protocols that are offered within TLS (RFC 7301), the better one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How the service shows clients that it is who it says, and keeps others from reading along: TLS 1.2 and 1.3.
///
/// ```no_run
/// # async fn example(queue: anyqueue::Queue) -> anyqueue::Result<()> {
/// use anyqueue_server::{Server, Tls};
///
/// let tls = Tls::from_files("server.crt", "server.key")?;
/// let server = Server::builder(queue).token("a secret of some length").tls(tls).build().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads the service's certificate, followed by those that lead to its authority, and its private key, both in PEM (RFC 7468). They are read once: who renews
    /// them starts the service anew. Blocks while it reads.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) with the file and the reason: it cannot be read, holds nothing of the kind, or the key is of another certificate.
    pub fn from_files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self> {
        let (certificate, key) = (certificate.as_ref(), key.as_ref());
        let unreadable = |what: &str, file: &Path, error: &dyn fmt::Display| {
            let text = format!("the {what} in {} cannot be read: {error}", file.display());
            Error::new(ErrorKind::InvalidInput, text)
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
            .map_err(|error| unreadable("certificate", certificate, &error))?;
        if chain.is_empty() {
            return Err(unreadable("certificate", certificate, &"there is none in it; it must be in PEM"));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("key", key, &error))?;
        let refused = |error| {
            let text = format!(
                "the certificate in {} cannot be used with the key in {}: {error}",
                certificate.display(),
                key.display()
            );
            Error::new(ErrorKind::InvalidInput, text)
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(refused)?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.clone())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
