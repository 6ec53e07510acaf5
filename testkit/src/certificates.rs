//! Certificates for encrypted connections to private servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::error::{Doing, Error, Result};
use crate::program::{find_program, run_helper};

const OPENSSL: &str = "openssl";
const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
/// Longer than any test.
const DAYS: &str = "2";
const AUTHORITY: &str = "[req]\ndistinguished_name = dn\nx509_extensions = authority\nprompt = no\n\
    [dn]\nCN = anyqueue test authority\n\
    [authority]\nbasicConstraints = critical, CA:TRUE\nkeyUsage = critical, keyCertSign\nsubjectKeyIdentifier = hash\n";

/// Allows any validity, for which `openssl` needs a list of what was signed.
const SIGNING: &str = "[ca]\ndefault_ca = authority\n\
    [authority]\ndatabase = index.txt\nunique_subject = no\nnew_certs_dir = .\nrand_serial = yes\ndefault_md = sha256\npolicy = policy\n\
    [policy]\ncommonName = supplied\n\
    [client]\nbasicConstraints = CA:FALSE\nextendedKeyUsage = clientAuth\n";

/// The certificate that a client shows to a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// The file with the certificate.
    pub certificate: PathBuf,
    /// The file with its private key.
    pub key: PathBuf,
}

/// A private authority, and the certificate that it issued to a server on this machine. The files are removed
/// when this is dropped.
///
/// ```
/// use anyqueue_testkit::{Certificates, Postgres, start_if_installed};
/// # #[tokio::main]
/// # async fn main() -> anyqueue_testkit::Result<()> {
/// let certificates = Certificates::make().await?;
/// let authority = certificates.authority();
/// if let Some(server) = start_if_installed(Postgres::new().tls(&certificates)).await? {
///     println!("{}?sslmode=verify-full&sslrootcert={}", server.url(), authority.display());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes a certificate for `localhost` and `127.0.0.1`.
    ///
    /// # Errors
    /// [`Error::Missing`] if the program `openssl` is not installed; otherwise its error output.
    pub async fn make() -> Result<Self> {
        Self::make_with("DNS:localhost, IP:127.0.0.1").await
    }

    /// Makes a certificate for another name, which no server here has.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub async fn make_for(name: &str) -> Result<Self> {
        Self::make_with(&format!("DNS:{name}")).await
    }

    async fn make_with(names: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("anyqueue-tls-").tempdir();
        let certificates = Self { folder: folder.doing(|| "make a temporary folder".to_owned())? };
        let server = format!(
            "[req]\ndistinguished_name = dn\nprompt = no\n[dn]\nCN = anyqueue test server\n\
             [server]\nbasicConstraints = CA:FALSE\nextendedKeyUsage = serverAuth, clientAuth\nsubjectAltName = {names}\n"
        );
        certificates.write("authority.cnf", AUTHORITY)?;
        certificates.write("server.cnf", &server)?;
        let request = ["req", "-x509", "-days", DAYS, "-config", "authority.cnf"];
        let files = ["-keyout", "authority.key", "-out", "authority.crt"];
        certificates.openssl(&[&request[..], &NEW_KEY, &files].concat()).await?;
        let files = ["-keyout", "server.key", "-out", "server.csr"];
        certificates.openssl(&[&["req", "-config", "server.cnf"][..], &NEW_KEY, &files].concat()).await?;
        let sign = ["x509", "-req", "-days", DAYS, "-in", "server.csr", "-out", "server.crt"];
        let by = ["-CA", "authority.crt", "-CAkey", "authority.key", "-CAcreateserial"];
        let as_server = ["-extfile", "server.cnf", "-extensions", "server"];
        certificates.openssl(&[&sign[..], &by, &as_server].concat()).await?;
        Ok(certificates)
    }

    /// Issues a certificate to a client of this name, which is valid only for clients. Call this once for
    /// each name.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub async fn client(&self, name: &str) -> Result<ClientCertificate> {
        self.client_with(name, &["-days", DAYS]).await
    }

    /// Like [`client`](Self::client), but the certificate expired years ago.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub async fn expired_client(&self, name: &str) -> Result<ClientCertificate> {
        self.client_with(name, &["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]).await
    }

    async fn client_with(&self, name: &str, valid: &[&str]) -> Result<ClientCertificate> {
        let file = |ending: &str| format!("client-{name}.{ending}");
        let (key, request, certificate) = (file("key"), file("csr"), file("crt"));
        self.write("signing.cnf", SIGNING)?;
        self.write("index.txt", "")?;
        self.write(
            &file("cnf"),
            &format!("[req]\ndistinguished_name = dn\nprompt = no\n[dn]\nCN = {name}\n"),
        )?;
        let ask = ["req", "-config", &file("cnf"), "-keyout", &key, "-out", &request];
        self.openssl(&[&ask[..], &NEW_KEY].concat()).await?;
        let sign = ["ca", "-batch", "-notext", "-config", "signing.cnf", "-extensions", "client"];
        let by =
            ["-cert", "authority.crt", "-keyfile", "authority.key", "-in", &request, "-out", &certificate];
        self.openssl(&[&sign[..], &by, valid].concat()).await?;
        Ok(ClientCertificate { certificate: self.file(&certificate), key: self.file(&key) })
    }

    /// The file with the authority's certificate, which a client has to trust.
    pub fn authority(&self) -> PathBuf {
        self.file("authority.crt")
    }

    /// The file with the server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.file("server.crt")
    }

    /// The file with the server's private key.
    pub fn key(&self) -> PathBuf {
        self.file("server.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.file(name), text).doing(|| format!("write {name}"))
    }

    async fn openssl(&self, arguments: &[&str]) -> Result<()> {
        let missing = Error::Missing { program: OPENSSL, install: "run `cargo xtask setup`" };
        let mut command = Command::new(find_program(OPENSSL, &[Path::new("/usr/bin")]).ok_or(missing)?);
        command.args(arguments).current_dir(self.folder.path());
        run_helper(command).await.map(drop)
    }
}
