//! `PgBouncer`, a pool of connections in front of PostgreSQL.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program, version_of};

const NAME: &str = "pgbouncer";

/// `PgBouncer` in front of a `PostgreSQL` server, in transaction mode: consecutive transactions of a client
/// can run on different connections, so a client cannot rely on anything that belongs to a connection.
#[derive(Debug, Clone)]
pub struct PgBouncer {
    upstream: SocketAddr,
    settings: Vec<(String, String)>,
}

impl PgBouncer {
    /// In front of the `PostgreSQL` server at this address, which must be running before this is started.
    pub fn new(upstream: SocketAddr) -> Self {
        Self { upstream, settings: Vec::new() }
    }

    /// Sets an option of the section `[pgbouncer]`, for instance `pool_mode` to `statement`. A later value
    /// wins.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    fn find(&self) -> Result<PathBuf> {
        // Debian installs it in a folder that is only in root's `PATH`.
        find_program(NAME, &[Path::new("/usr/sbin")])
            .ok_or(Error::Missing { program: NAME, install: self.install() })
    }

    fn configuration(&self, listen: SocketAddr) -> String {
        let Self { upstream, settings } = self;
        let mut text = format!(
            "[databases]\n* = host={} port={} user=postgres\n\
             [pgbouncer]\nlisten_addr = {}\nlisten_port = {}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\n",
            upstream.ip(),
            upstream.port(),
            listen.ip(),
            listen.port()
        );
        for (name, value) in settings {
            text.extend([name, " = ", value, "\n"]);
        }
        text
    }
}

#[async_trait]
impl Program for PgBouncer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn variable(&self) -> &'static str {
        "ANYQUEUE_TEST_PGBOUNCER_URL"
    }

    fn account(&self) -> Option<&'static str> {
        Some("postgres")
    }

    async fn version(&self) -> Result<String> {
        version_of(&self.find()?).await
    }

    async fn prepare(&self, place: &Place) -> Result<()> {
        place.write("pgbouncer.ini", &self.configuration(place.addr())).map(drop)
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = place.command(self.find()?);
        command.arg("pgbouncer.ini");
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        wire::postgres_ready(place.addr()).await
    }

    fn url(&self, place: &Place) -> String {
        format!("postgres://postgres@{}/postgres", place.addr())
    }
}
