//! TLS: the service's certificate, and the certificates of clients.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyqueue::{Error, ErrorKind, Result};
use anyqueue_control::tokens::Fingerprint;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// The protocols that are offered within TLS (RFC 7301), the better one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What happens to clients that show no certificate when they are asked for one.
///
/// A client whose certificate has expired or was issued by another authority is refused in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are served, and each of their requests must carry a token.
    Optional,
    /// They are refused before they can make any request, even to `/livez`.
    Required,
}

/// How the service proves its identity to clients and encrypts connections: TLS 1.2 and 1.3.
///
/// ```no_run
/// # async fn example(queue: anyqueue::Queue) -> anyqueue::Result<()> {
/// use anyqueue_server::{ClientCertificates, Server, Tls};
///
/// let tls = Tls::from_files("server.crt", "server.key")?
///     .with_client_authority("clients.crt", ClientCertificates::Optional)?;
/// let server = Server::builder(queue).tls(tls).build().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tls {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    config: Arc<ServerConfig>,
    asks_clients: bool,
}

impl Tls {
    /// Reads the service's certificate, followed by the certificates that lead to its authority, and its
    /// private key, both in PEM (RFC 7468).
    ///
    /// The files are read only once: to use renewed ones, restart the service. Blocks while it reads.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](ErrorKind::InvalidInput) with the file and the reason if a file cannot be
    /// read or does not contain the expected item, or if the key belongs to another certificate.
    pub fn from_files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self> {
        let (certificate, key) = (certificate.as_ref(), key.as_ref());
        let chain = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("key", key, &error))?;
        let config = config(&chain, &private, WebPkiClientVerifier::no_client_auth()).map_err(|error| {
            let text = format!(
                "the certificate in {} cannot be used with the key in {}: {error}",
                certificate.display(),
                key.display()
            );
            Error::new(ErrorKind::InvalidInput, text)
        })?;
        Ok(Self { chain, key: Arc::new(private), config: Arc::new(config), asks_clients: false })
    }

    /// Asks clients for certificates from the authorities whose own certificates are in this PEM file, which
    /// is read only once. A client whose certificate is [bound to a
    /// token](anyqueue_control::tokens::Tokens::bind) need not send the token: its requests count as made
    /// with that token. Every request must then be authenticated, as with
    /// [`require_tokens`](crate::ServerBuilder::require_tokens).
    ///
    /// Revocations are not checked: unbind the certificate, or delete its token. The validity period is
    /// checked when a client connects. Connections are not resumed (RFC 8446, 2.2), so that each one is
    /// checked, and a connection on which a certificate was shown is closed after an hour. Blocks while it
    /// reads.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](ErrorKind::InvalidInput) with the file and the reason if the file cannot be
    /// read, or contains no certificate of an authority.
    pub fn with_client_authority(
        self,
        authorities: impl AsRef<Path>,
        clients: ClientCertificates,
    ) -> Result<Self> {
        let authorities = authorities.as_ref();
        let refused = |error: &dyn fmt::Display| unreadable("authority of clients", authorities, error);
        let mut roots = RootCertStore::empty();
        for one in certificates(authorities)? {
            roots.add(one).map_err(|error| refused(&error))?;
        }
        let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        if clients == ClientCertificates::Optional {
            verifier = verifier.allow_unauthenticated();
        }
        let verifier = verifier.build().map_err(|error| refused(&error))?;
        let mut config = config(&self.chain, &self.key, verifier).map_err(|error| refused(&error))?;
        // A resumed connection could show a certificate that has expired meanwhile.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), asks_clients: true, ..self })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }

    /// Whether clients are asked for certificates.
    pub(crate) const fn asks_clients(&self) -> bool {
        self.asks_clients
    }
}

/// Returns the fingerprint of the first certificate in a PEM file. Blocks while it reads.
///
/// # Errors
/// Returns [`InvalidInput`](ErrorKind::InvalidInput) with the file and the reason if the file cannot be read,
/// or contains no certificate.
pub fn fingerprint_of(certificate: impl AsRef<Path>) -> Result<Fingerprint> {
    let certificate = certificate.as_ref();
    let all = certificates(certificate)?;
    all.first().map(|first| Fingerprint::of(first)).ok_or_else(|| none_in(certificate))
}

/// Reads the certificates in a file: at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| unreadable("certificate", file, &error))?;
    if all.is_empty() { Err(none_in(file)) } else { Ok(all) }
}

fn none_in(file: &Path) -> Error {
    unreadable("certificate", file, &"there is none in it; it must be in PEM")
}

fn unreadable(what: &str, file: &Path, error: &dyn fmt::Display) -> Error {
    let text = format!("the {what} in {} cannot be read: {error}", file.display());
    Error::new(ErrorKind::InvalidInput, text)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn config(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    clients: Arc<dyn ClientCertVerifier>,
) -> std::result::Result<ServerConfig, tokio_rustls::rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config =
        builder.with_client_cert_verifier(clients).with_single_cert(chain.to_vec(), key.clone_key())?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(config)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
