//! Redis.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::certificates::Certificates;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program, version_of};

const NAME: &str = "redis-server";

/// Redis with an append-only file that is synced every second.
#[derive(Debug, Clone, Default)]
pub struct Redis {
    settings: Vec<(String, String)>,
    /// The server's certificate, its private key, and the certificate of its authority.
    tls: Option<[PathBuf; 3]>,
    master: Option<SocketAddr>,
    is_cluster_node: bool,
}

impl Redis {
    /// With the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an option of the server's configuration, for instance `appendfsync` to `always`.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Serves by TLS, with the certificate made for the server. A client needs no certificate unless
    /// `tls-auth-clients` is set to `yes`.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some([certificates.certificate(), certificates.key(), certificates.authority()]);
        self.setting("tls-auth-clients", "no")
    }

    /// Makes it a replica of the server at this address. It is ready once it has the master's data.
    #[must_use]
    pub fn replica_of(mut self, master: SocketAddr) -> Self {
        self.master = Some(master);
        self
    }

    /// Makes it a node of a cluster that has yet to be formed: see [`RedisCluster`](crate::RedisCluster).
    #[must_use]
    pub(crate) fn cluster_node(mut self) -> Self {
        self.is_cluster_node = true;
        // Before the caller's settings, so that those win.
        let defaults = [("cluster-enabled", "yes"), ("cluster-node-timeout", "5000")];
        self.settings.splice(0..0, defaults.map(|(name, value)| (name.to_owned(), value.to_owned())));
        self
    }

    fn find(&self) -> Result<PathBuf> {
        find_program(NAME, &[]).ok_or(Error::Missing { program: NAME, install: self.install() })
    }
}

#[async_trait]
impl Program for Redis {
    fn name(&self) -> &'static str {
        NAME
    }

    fn variable(&self) -> &'static str {
        "ANYQUEUE_TEST_REDIS_URL"
    }

    fn ports(&self) -> usize {
        if self.is_cluster_node || self.tls.is_some() { 2 } else { 1 }
    }

    async fn version(&self) -> Result<String> {
        version_of(&self.find()?).await
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = place.command(self.find()?);
        let port = place.addr().port().to_string();
        command.args(["--bind", "127.0.0.1"]);
        match &self.tls {
            None => drop(command.args(["--port", &port])),
            Some([certificate, key, authority]) => {
                command.args(["--tls-port", &port, "--port", &plain_addr(place).port().to_string()]);
                command.arg("--tls-cert-file").arg(certificate).arg("--tls-key-file").arg(key);
                command.arg("--tls-ca-cert-file").arg(authority);
            }
        }
        if self.is_cluster_node {
            command.args(["--cluster-port", &place.port(1).port().to_string()]);
        }
        if let Some(master) = self.master {
            command.args(["--replicaof", &master.ip().to_string(), &master.port().to_string()]);
        }
        command.arg("--dir").arg(place.dir());
        command.args(["--daemonize", "no", "--save", "", "--appendonly", "yes"]);
        for (name, value) in &self.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        let addr = if self.tls.is_some() { plain_addr(place) } else { place.addr() };
        // While it loads its data, it responds with an error.
        wire::expect(addr, b"PING\r\n", b"+PONG\r\n").await?;
        if self.master.is_some()
            && !wire::redis(addr, "INFO replication").await?.contains("master_link_status:up")
        {
            return Err(io::Error::other("it has not got its master's data yet"));
        }
        Ok(())
    }

    fn url(&self, place: &Place) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}/", place.addr())
    }
}

/// The address without TLS at which a server with TLS is asked whether it is ready.
fn plain_addr(place: &Place) -> SocketAddr {
    place.port(1)
}
