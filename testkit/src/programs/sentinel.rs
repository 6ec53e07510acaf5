//! Redis Sentinel, which makes a replica the master when the master is gone.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program, version_of};

const NAME: &str = "redis-server";

/// A sentinel that decides alone. It is ready once it knows a replica of the master.
#[derive(Debug, Clone)]
pub struct RedisSentinel {
    master: String,
    addr: SocketAddr,
}

impl RedisSentinel {
    /// Watches the master of this name at this address, which must have a replica before this is started.
    pub fn new(master: impl Into<String>, addr: SocketAddr) -> Self {
        Self { master: master.into(), addr }
    }

    fn find(&self) -> Result<PathBuf> {
        find_program(NAME, &[]).ok_or(Error::Missing { program: NAME, install: self.install() })
    }
}

#[async_trait]
impl Program for RedisSentinel {
    fn name(&self) -> &'static str {
        "redis-sentinel"
    }

    fn variable(&self) -> &'static str {
        "ANYQUEUE_TEST_REDIS_SENTINEL_URL"
    }

    async fn version(&self) -> Result<String> {
        version_of(&self.find()?).await
    }

    /// The sentinel writes what it learns into its own configuration.
    async fn prepare(&self, place: &Place) -> Result<()> {
        let Self { master, addr } = self;
        let text = format!(
            "bind 127.0.0.1\nport {}\ndir {}\nsentinel monitor {master} {} {} 1\n\
             sentinel down-after-milliseconds {master} 1000\nsentinel failover-timeout {master} 3000\n",
            place.addr().port(),
            place.dir().display(),
            addr.ip(),
            addr.port()
        );
        place.write("sentinel.conf", &text).map(drop)
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = place.command(self.find()?);
        command.args(["sentinel.conf", "--sentinel"]);
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        let info = wire::redis(place.addr(), "INFO sentinel").await?;
        if info.contains("slaves=0") || !info.contains("slaves=") {
            return Err(io::Error::other("it knows no replica yet"));
        }
        Ok(())
    }

    fn url(&self, place: &Place) -> String {
        format!("redis-sentinel://{}/?master={}", place.addr(), self.master)
    }
}
