//! RabbitMQ, a single node.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::error::{Doing, Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program};

const NAME: &str = "rabbitmq-server";
/// Debian's folders. The programs of the same names in the `PATH` switch to another user.
const SCRIPTS: &str = "/usr/lib/rabbitmq/bin";
const VERSIONS: &str = "/usr/lib/rabbitmq/lib";
const COOKIE: &str = ".erlang.cookie";

/// A node finds others, and its tools find it, through Erlang's port mapper. This one is the node's own: both end together.
const WITH_PORT_MAPPER: &str = r#"
epmd -address 127.0.0.1 -port "$ERL_EPMD_PORT" &
exec "$1"
"#;

/// Other nodes are to be on this machine, and schedulers without work are to leave the processors to others.
const ERLANG_ARGUMENTS: &str =
    "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none";

/// A `RabbitMQ` node with no plugins. Its user is `guest` with the password `guest`.
///
/// A quorum queue that was declared less than a second before [`kill`](crate::Server::kill) can be lost: declare it,
/// publish to it, and then kill.
#[derive(Debug, Clone, Default)]
pub struct RabbitMq {
    configuration: String,
    erlang_arguments: String,
}

impl RabbitMq {
    /// With the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an option of `rabbitmq.conf`, for instance `consumer_timeout` to `3000`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.configuration.extend([name, " = ", value, "\n"]);
        self
    }

    /// Adds arguments for the Erlang machine, for instance `-rabbit channel_tick_interval 1000`.
    #[must_use]
    pub fn erlang_arguments(mut self, arguments: &str) -> Self {
        self.erlang_arguments.push(' ');
        self.erlang_arguments.push_str(arguments);
        self
    }

    fn missing(&self) -> Error {
        Error::Missing { program: NAME, install: self.install() }
    }
}

#[async_trait]
impl Program for RabbitMq {
    fn name(&self) -> &'static str {
        NAME
    }

    fn variable(&self) -> &'static str {
        "ANYQUEUE_TEST_AMQP_URL"
    }

    /// For clients, for other nodes, and for the port mapper.
    fn ports(&self) -> usize {
        3
    }

    async fn version(&self) -> Result<String> {
        // To ask the program would start an Erlang machine, which takes a second.
        let folders = fs::read_dir(VERSIONS).map_err(|_| self.missing())?;
        let names = folders.flatten().map(|folder| folder.file_name().to_string_lossy().into_owned());
        let versions = names.filter_map(|name| name.strip_prefix("rabbitmq_server-").map(str::to_owned));
        versions.max().ok_or_else(|| self.missing())
    }

    async fn prepare(&self, place: &Place) -> Result<()> {
        place.write("rabbitmq.conf", &self.configuration)?;
        place.write("enabled_plugins", "[].")?;
        let cookie = place.write(COOKIE, "anyqueue")?;
        // Erlang takes no cookie that others can read.
        fs::set_permissions(&cookie, fs::Permissions::from_mode(0o400))
            .doing(|| format!("protect {}", cookie.display()))
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let script = Path::new(SCRIPTS).join(NAME);
        if !script.is_file() || find_program("epmd", &[]).is_none() {
            return Err(self.missing());
        }
        let dir = |name: &str| -> PathBuf { place.dir().join(name) };
        let port = |index| place.port(index).port().to_string();
        let mut command = place.command("sh");
        command.args(["-c", WITH_PORT_MAPPER, "sh"]).arg(script);
        command
            .env("HOME", place.dir())
            .env("RABBITMQ_NODENAME", format!("rabbit{}@localhost", port(0)))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", port(0))
            .env("RABBITMQ_DIST_PORT", port(1))
            .env("ERL_EPMD_PORT", port(2))
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_MNESIA_BASE", dir("data"))
            .env("RABBITMQ_LOG_BASE", dir("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_CONFIG_FILE", dir("rabbitmq.conf"))
            .env("RABBITMQ_GENERATED_CONFIG_DIR", dir("generated"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir("enabled_plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                format!("{ERLANG_ARGUMENTS}{}", self.erlang_arguments),
            )
            // Lets the script become the server, which then gets the signals itself.
            .env("RUNNING_UNDER_SYSTEMD", "true");
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        // The node's first frame: method Connection.Start on channel 0. Its length differs, so look at the beginning.
        wire::expect(place.addr(), b"AMQP\0\0\x09\x01", b"\x01\0\0").await
    }

    fn url(&self, place: &Place) -> String {
        format!("amqp://guest:guest@{}/%2f", place.addr())
    }
}
