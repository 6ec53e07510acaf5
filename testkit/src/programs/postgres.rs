//! PostgreSQL.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;

use super::{postgres_data, wire};
use crate::certificates::Certificates;
use crate::error::{Doing, Error, Result};
use crate::place::Place;
use crate::program::{Program, StopSignal, find_program, run_helper, version_of};
use crate::server::Server;

const NAME: &str = "postgres";
/// Debian's folder, which contains one folder per version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// File names in the data folder, where the server looks for them.
const CERTIFICATE: &str = "test-server.crt";
const KEY: &str = "test-server.key";

/// A killed server leaves a few bytes of shared memory behind. A machine has room for some thousand such
/// segments.
const FREE_SHARED_MEMORY: &str = r#"
id=$(sed -n '7s/.* //p' "$1/data/postmaster.pid") && [ -n "$id" ] && ipcrm -m "$id"
"#;

/// `PostgreSQL` with its default settings. It accepts everybody on the loopback interface.
#[derive(Debug, Clone, Default)]
pub struct Postgres {
    settings: Vec<(String, String)>,
    /// The server's certificate and its private key.
    tls: Option<(PathBuf, PathBuf)>,
    primary: Option<SocketAddr>,
}

impl Postgres {
    /// With the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a parameter of the server, for instance `max_connections` to `500`. With `fsync` set to `off` it
    /// is faster and still keeps its data when it is killed, though not when the machine fails.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Lets clients connect by TLS, with the certificate made for the server. Connections without TLS are
    /// accepted too.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some((certificates.certificate(), certificates.key()));
        self.setting("ssl", "on").setting("ssl_cert_file", CERTIFICATE).setting("ssl_key_file", KEY)
    }

    /// Makes it a standby of this server: it begins with a copy of the primary's data, follows it, and serves
    /// readers until it is promoted (`SELECT pg_promote()`). A primary that should wait for it needs
    /// `synchronous_standby_names` set to `*`.
    #[must_use]
    pub fn standby_of(mut self, primary: &Server) -> Self {
        self.primary = Some(primary.addr());
        self
    }

    /// Finds one of the server's programs, of the newest version that is installed.
    fn find(&self, program: &str) -> Result<PathBuf> {
        let mut folders: Vec<_> = fs::read_dir(VERSIONS).into_iter().flatten().flatten().collect();
        folders.sort_by_key(|folder| {
            Reverse(folder.file_name().to_str().and_then(|name| name.parse::<u32>().ok()))
        });
        let debian =
            folders.iter().map(|folder| folder.path().join("bin")).find(|bin| bin.join(NAME).is_file());
        // All from one place: programs of two versions do not work together.
        let found = match &debian {
            Some(bin) => Some(bin.join(program)).filter(|path| path.is_file()),
            None => find_program(program, &[]),
        };
        found.ok_or(Error::Missing { program: NAME, install: self.install() })
    }
}

/// The server refuses a key that others can read.
fn copy(place: &Place, from: &Path, to: &str) -> Result<()> {
    let text = fs::read_to_string(from).doing(|| format!("read {}", from.display()))?;
    let path = place.write(&format!("data/{to}"), &text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
        .doing(|| format!("protect {}", path.display()))
}

#[async_trait]
impl Program for Postgres {
    fn name(&self) -> &'static str {
        NAME
    }

    fn variable(&self) -> &'static str {
        "ANYQUEUE_TEST_POSTGRES_URL"
    }

    fn account(&self) -> Option<&'static str> {
        Some("postgres")
    }

    async fn version(&self) -> Result<String> {
        version_of(&self.find(NAME)?).await
    }

    async fn prepare(&self, place: &Place) -> Result<()> {
        if let Some(primary) = self.primary {
            let (host, port) = (primary.ip().to_string(), primary.port().to_string());
            let mut command = place.command(self.find("pg_basebackup")?);
            command.arg("-D").arg(place.dir().join("data")).args(["-U", "postgres", "--no-sync"]);
            command.args(["-h", &host, "-p", &port, "--write-recovery-conf", "--checkpoint=fast"]);
            run_helper(command).await?;
        } else {
            postgres_data::make(place, self.find("initdb")?).await?;
        }
        if let Some((certificate, key)) = &self.tls {
            copy(place, certificate, CERTIFICATE)?;
            copy(place, key, KEY)?;
        }
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = place.command(self.find(NAME)?);
        command.arg("-D").arg(Path::new("data"));
        let port = place.addr().port().to_string();
        for (name, value) in [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            // The path of a socket in a temporary folder can be too long for the system.
            ("unix_socket_directories", ""),
            // After a kill it would otherwise sync each file individually, which takes seconds.
            ("recovery_init_sync_method", "syncfs"),
            // In its folder, so that none of it outlives a kill.
            ("dynamic_shared_memory_type", "mmap"),
        ] {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        wire::postgres_ready(place.addr()).await
    }

    fn stop_signal(&self) -> StopSignal {
        // At SIGTERM it would wait for its clients to leave.
        StopSignal::Interrupt
    }

    fn clean_up(&self) -> &'static str {
        FREE_SHARED_MEMORY
    }

    fn url(&self, place: &Place) -> String {
        format!("postgres://postgres@{}/postgres", place.addr())
    }
}
