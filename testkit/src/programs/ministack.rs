//! ministack, which stands in for Amazon SQS.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program};

const NAME: &str = "ministack";
/// `cargo xtask setup` installs the same.
const VERSION: &str = "1.5.33";

/// ministack with its SQS alone. What it holds is lost when it is killed.
#[derive(Debug, Clone, Default)]
pub struct Ministack {
    persistent: bool,
}

impl Ministack {
    /// With the defaults: it keeps nothing over a restart.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps its queues over [`restart`](crate::Server::restart), though not over [`kill`](crate::Server::kill).
    #[must_use]
    pub fn persistent(self) -> Self {
        Self { persistent: true }
    }

    fn find(&self) -> Result<PathBuf> {
        let data = env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| env::home_dir().map(|home| home.join(".local/share")));
        let own = data.map(|data| data.join(format!("anyqueue/{NAME}-{VERSION}/bin"))).unwrap_or_default();
        find_program(NAME, &[&own]).ok_or(Error::Missing { program: NAME, install: self.install() })
    }
}

#[async_trait]
impl Program for Ministack {
    fn name(&self) -> &'static str {
        NAME
    }

    fn variable(&self) -> &'static str {
        "ANYQUEUE_TEST_SQS_URL"
    }

    async fn version(&self) -> Result<String> {
        // The program does not tell. What setup did not install is of an unknown version.
        let own = self.find()?.to_string_lossy().contains(&format!("{NAME}-{VERSION}"));
        Ok(if own { VERSION } else { "unknown" }.to_owned())
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = place.command(self.find()?);
        command
            // By default it listens on every interface.
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", place.addr().port().to_string())
            .env("SERVICES", "sqs")
            .env("STATE_DIR", place.dir().join("state"));
        if self.persistent {
            command.env("PERSIST_STATE", "1");
        }
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        let request =
            b"GET /?Action=ListQueues&Version=2012-11-05 HTTP/1.1\r\nHost: sqs\r\nConnection: close\r\n\r\n";
        wire::expect(place.addr(), request, b"HTTP/1.1 200").await
    }

    /// The endpoint that an SQS client is given, not a queue's URL.
    fn url(&self, place: &Place) -> String {
        format!("http://{}", place.addr())
    }
}
