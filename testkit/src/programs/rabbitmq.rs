//! RabbitMQ: a node, and the tool that controls it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::certificates::Certificates;
use crate::error::{Doing, Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program, run_helper};
use crate::server::Server;

const NAME: &str = "rabbitmq-server";
/// Debian's folders. The programs of the same names in the `PATH` switch to another user.
const SCRIPTS: &str = "/usr/lib/rabbitmq/bin";
const CONTROL: &str = "rabbitmqctl";
const VERSIONS: &str = "/usr/lib/rabbitmq/lib";
const COOKIE: &str = ".erlang.cookie";

/// A node finds others, and its tools find it, through Erlang's port mapper. This one belongs to the node:
/// both end together.
const WITH_PORT_MAPPER: &str = r#"
epmd -address 127.0.0.1 -port "$ERL_EPMD_PORT" &
exec "$1"
"#;

/// The nodes of a cluster find each other through a port mapper that outlives each of them.
const WITHOUT_PORT_MAPPER: &str = r#"exec "$1""#;

/// For a node and for the tool: other nodes have to be on this machine, and schedulers without work should
/// leave the processors to others.
const ERLANG_ARGUMENTS: &str =
    "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none";

/// A node looks into each module of these applications for its boot steps. One by one, each module is
/// searched for in 90 folders, which takes two fifths of the start time. So the folders of plugins are left
/// out, since none are used, and the modules are loaded at once.
const LOAD_AT_ONCE: &str = r#"-eval '
code:set_path([P || P <- code:get_path(),
    string:find(P, "/plugins/rabbitmq_") == nomatch orelse string:find(P, "rabbitmq_prelaunch") /= nomatch]),
code:ensure_modules_loaded([list_to_atom(filename:basename(File, ".beam")) ||
    App <- [rabbit, rabbit_common, rabbitmq_prelaunch, aten, credentials_obfuscation, gen_batch_server, observer_cli, osiris, ra, ranch,
        recon, seshat, stdout_formatter, syslog, sysmon_handler,
        asn1, compiler, crypto, inets, mnesia, os_mon, public_key, runtime_tools, sasl, ssl, syntax_tools, tools, xmerl],
    Folder <- [code:lib_dir(App, ebin)], is_list(Folder), File <- filelib:wildcard(Folder ++ "/*.beam")]).
'"#;
const EMULATOR_FLAGS: &str = "ERL_AFLAGS";

/// A `RabbitMQ` node with no plugins. Its user is `guest` with the password `guest`.
///
/// A quorum queue that was declared less than a second before [`kill`](crate::Server::kill) can be lost:
/// declare it, publish to it, and then kill.
#[derive(Debug, Clone, Default)]
pub struct RabbitMq {
    configuration: String,
    erlang_arguments: String,
    /// The server's certificate, its private key, and the certificate of its authority.
    tls: Option<[PathBuf; 3]>,
    /// Where nodes of a cluster find each other, instead of a port mapper of their own.
    port_mapper: Option<SocketAddr>,
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

    /// Serves by TLS, with the certificate made for the server. A client needs no certificate unless
    /// `ssl_options.fail_if_no_peer_cert` is set to `true` and `ssl_options.verify` to `verify_peer`.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some([certificates.certificate(), certificates.key(), certificates.authority()]);
        self
    }

    /// Makes it a node of a cluster, which joins these others when it starts for the first time. See
    /// [`RabbitCluster`](crate::RabbitCluster).
    #[must_use]
    pub(crate) fn cluster_node(self, port_mapper: SocketAddr, others: &[String]) -> Self {
        let mut node = self;
        if !others.is_empty() {
            node = node.setting("cluster_formation.peer_discovery_backend", "classic_config");
        }
        for (index, other) in others.iter().enumerate() {
            node = node.setting(&format!("cluster_formation.classic_config.nodes.{}", index + 1), other);
        }
        node.port_mapper = Some(port_mapper);
        node
    }

    /// The name under which other nodes know the node that clients reach at this address.
    pub(crate) fn node_name(addr: SocketAddr) -> String {
        format!("rabbit{}@localhost", addr.port())
    }

    /// Runs `rabbitmqctl` with these arguments against a node that [`Server::start`] started, and returns its
    /// output. This takes a second or two.
    ///
    /// # Errors
    /// If it fails, with its error output.
    pub async fn control(server: &Server, arguments: &[&str]) -> Result<String> {
        let node = server.command()?;
        let mut control = server.place().command(Path::new(SCRIPTS).join(CONTROL));
        for (name, value) in node.get_envs() {
            control.env(name, value.unwrap_or_default());
        }
        control
            .env_remove(EMULATOR_FLAGS)
            .args(arguments)
            .env("RABBITMQ_CTL_ERL_ARGS", ERLANG_ARGUMENTS)
            // Several may run at once.
            .env("RABBITMQ_CTL_DIST_PORT_MIN", "22000")
            .env("RABBITMQ_CTL_DIST_PORT_MAX", "22999");
        run_helper(control).await
    }

    /// The address at which a node is reached without TLS.
    fn plain_addr(&self, place: &Place) -> SocketAddr {
        place.port(if self.tls.is_some() { 3 } else { 0 })
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

    /// For clients, for other nodes, for the port mapper, and for clients without TLS.
    fn ports(&self) -> usize {
        if self.tls.is_some() { 4 } else { 3 }
    }

    async fn version(&self) -> Result<String> {
        // Asking the program would start an Erlang machine, which takes a second.
        let folders = fs::read_dir(VERSIONS).map_err(|_| self.missing())?;
        let names = folders.flatten().map(|folder| folder.file_name().to_string_lossy().into_owned());
        let versions = names.filter_map(|name| name.strip_prefix("rabbitmq_server-").map(str::to_owned));
        versions.max().ok_or_else(|| self.missing())
    }

    async fn prepare(&self, place: &Place) -> Result<()> {
        let tls = self.tls.as_ref().map(|[certificate, key, authority]| {
            format!(
                "listeners.ssl.1 = {}\nssl_options.certfile = {}\nssl_options.keyfile = {}\nssl_options.cacertfile = {}\n",
                place.addr(),
                certificate.display(),
                key.display(),
                authority.display()
            )
        });
        let configuration = [self.configuration.as_str(), tls.as_deref().unwrap_or_default()].concat();
        // Without a file, the node need not load the code that reads it.
        if !configuration.is_empty() {
            place.write("rabbitmq.conf", &configuration)?;
        }
        place.write("enabled_plugins", "[].")?;
        let cookie = place.write(COOKIE, "anyqueue")?;
        // Erlang does not accept a cookie that others can read.
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
        let start = if self.port_mapper.is_some() { WITHOUT_PORT_MAPPER } else { WITH_PORT_MAPPER };
        command.args(["-c", start, "sh"]).arg(script);
        let port_mapper = self.port_mapper.unwrap_or(place.port(2));
        command
            .env("HOME", place.dir())
            .env("RABBITMQ_NODENAME", Self::node_name(place.addr()))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", self.plain_addr(place).port().to_string())
            .env("RABBITMQ_DIST_PORT", port(1))
            .env("ERL_EPMD_PORT", port_mapper.port().to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_MNESIA_BASE", dir("data"))
            .env("RABBITMQ_LOG_BASE", dir("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_CONFIG_FILE", dir("rabbitmq.conf"))
            .env("RABBITMQ_GENERATED_CONFIG_DIR", dir("generated"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir("enabled_plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env(EMULATOR_FLAGS, LOAD_AT_ONCE)
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                format!("{ERLANG_ARGUMENTS}{}", self.erlang_arguments),
            )
            // Lets the script become the server, which then gets the signals itself.
            .env("RUNNING_UNDER_SYSTEMD", "true");
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        // The node's first frame: method Connection.Start on channel 0. Its length varies, so look only at
        // the beginning.
        wire::expect(self.plain_addr(place), b"AMQP\0\0\x09\x01", b"\x01\0\0").await?;
        // Its other listener is opened after this one.
        if self.tls.is_some() { tokio::net::TcpStream::connect(place.addr()).await.map(drop) } else { Ok(()) }
    }

    fn url(&self, place: &Place) -> String {
        let scheme = if self.tls.is_some() { "amqps" } else { "amqp" };
        format!("{scheme}://guest:guest@{}/%2f", place.addr())
    }
}
