//! Redis.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program, run_helper, version_in};

const NAME: &str = "redis-server";

/// Redis, with an append-only file that is synced each second.
#[derive(Debug, Clone, Default)]
pub struct Redis {
    settings: Vec<(String, String)>,
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

    async fn version(&self) -> Result<String> {
        let mut command = Command::new(self.find()?);
        command.arg("--version");
        Ok(version_in(&run_helper(command).await?).unwrap_or_default())
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = place.command(self.find()?);
        command.args(["--bind", "127.0.0.1", "--port", &place.addr().port().to_string()]);
        command.arg("--dir").arg(place.dir());
        command.args(["--daemonize", "no", "--save", "", "--appendonly", "yes"]);
        for (name, value) in &self.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        // While it loads its data it answers with an error.
        wire::expect(place.addr(), b"PING\r\n", b"+PONG\r\n").await
    }

    fn url(&self, place: &Place) -> String {
        format!("redis://{}/", place.addr())
    }
}
