//! ministack, which stands in for Amazon SQS.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program};

const NAME: &str = "ministack";
/// The version that `cargo xtask setup` installs.
const VERSION: &str = "1.5.33";

/// ministack with only its SQS. Its contents are lost when it is killed.
#[derive(Debug, Clone, Default)]
pub struct Ministack {
    persistent: bool,
}

impl Ministack {
    /// With the defaults: a restart loses its contents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps its queues across [`restart`](crate::Server::restart), though not across
    /// [`kill`](crate::Server::kill).
    #[must_use]
    pub fn persistent(self) -> Self {
        Self { persistent: true }
    }

    /// Finds a way to start it: preferably as setup installed it, served by uvicorn, which takes half the
    /// processor time of the server that ministack includes; otherwise whatever the machine has.
    fn find(&self) -> Result<Found> {
        if let Some(uvicorn) = installed().filter(|path| path.is_file()) {
            return Ok(Found::Installed(uvicorn));
        }
        let found = find_program(NAME, &[]).map(Found::Other);
        found.ok_or(Error::Missing { program: NAME, install: self.install() })
    }
}

/// The program that serves ministack.
enum Found {
    /// uvicorn, next to the version that setup installs.
    Installed(PathBuf),
    /// ministack itself, of an unknown version.
    Other(PathBuf),
}

/// Where setup installs uvicorn.
fn installed() -> Option<PathBuf> {
    let data = env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".local/share")))?;
    Some(data.join(format!("anyqueue/{NAME}-{VERSION}/bin/uvicorn")))
}

/// Serves ministack there. When it stops, it waits for requests under way only as long as clients need to
/// notice.
fn uvicorn(program: &Path, place: &Place, persistent: bool) -> Command {
    let mut command = place.command(program);
    let port = place.addr().port().to_string();
    command.args(["ministack.app:app", "--host", "127.0.0.1", "--port", &port]);
    // uvicorn's own date is late by up to a second; without it, ministack sets the correct one.
    command.arg("--no-date-header");
    // Nobody forwards requests to it: it need not look for where they come from.
    command.args(["--no-proxy-headers", "--no-access-log", "--log-level", "warning"]);
    command.args(["--timeout-keep-alive", "75", "--timeout-graceful-shutdown", "1"]);
    if !persistent {
        // At its start and end ministack loads and saves its contents, if they are to be kept. The rest is for
        // other services than SQS.
        command.args(["--lifespan", "off"]);
    }
    command
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
        let version = match self.find()? {
            Found::Installed(_) => VERSION,
            Found::Other(_) => "unknown",
        };
        Ok(version.to_owned())
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = match self.find()? {
            Found::Installed(program) => uvicorn(&program, place, self.persistent),
            Found::Other(program) => place.command(program),
        };
        command
            // By default it listens on every interface.
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", place.addr().port().to_string())
            .env("SERVICES", "sqs")
            // Otherwise it loads IoT at its start whatever is wanted, which is most of the work of a start.
            .env("IOT_MTLS_ENABLED", "0")
            .env("LOG_LEVEL", "WARNING")
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
