//! Opening connections: to one server, to a master that sentinels know, or to a cluster.

use std::path::Path;

use anyqueue::Result;
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, RedisError,
    RedisResult, TlsCertificates, TlsMode, Value,
};

use crate::config::{Config, TlsFiles, Topology, with_host};
use crate::error::{ERRORS, classify_connect};
use crate::{reply, script};

/// How many calls may be queued for sending. Further calls wait in their tasks.
const PIPELINE: usize = 1024;
/// How often the cluster client repeats a call within its time, after a redirection or while the cluster
/// elects a master.
const REDIRECTIONS: u32 = 64;
/// The longest pause before a repetition, in milliseconds.
const REDIRECTION_PAUSE_MS: u64 = 200;

/// Opens connections.
pub(crate) struct Connector {
    client: ClientKind,
    options: AsyncConnectionConfig,
}

enum ClientKind {
    Server(Client),
    /// The client keeps its connection to a sentinel.
    Sentinel(tokio::sync::Mutex<SentinelClient>),
    Cluster(ClusterClient, Vec<Client>),
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) enum Conn {
    Single(MultiplexedConnection),
    /// A connection to all servers of a cluster, which finds new masters by itself.
    Cluster(ClusterConnection),
}

impl Connector {
    pub(crate) async fn new(config: &Config) -> Result<Self> {
        let certificates = certificates(config).await?;
        let client = ClientKind::new(config, certificates);
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(config.connect_timeout))
            .set_response_timeout(Some(config.call_timeout))
            .set_pipeline_buffer_size(PIPELINE);
        Ok(Self { client: client.map_err(|error| classify_connect(error, &config.target()))?, options })
    }

    pub(crate) async fn connect(&self) -> RedisResult<Conn> {
        let client = match &self.client {
            ClientKind::Server(client) => client.clone(),
            ClientKind::Sentinel(sentinel) => sentinel.lock().await.async_get_client().await?,
            ClientKind::Cluster(cluster, seeds) => {
                return match cluster.get_async_connection().await {
                    Ok(conn) => Ok(Conn::Cluster(conn)),
                    Err(error) => Err(self.refusal(seeds).await.unwrap_or(error)),
                };
            }
        };
        let mut conn = client.get_multiplexed_async_connection_with_config(&self.options).await?;
        load_scripts(&mut conn).await?;
        Ok(Conn::Single(conn))
    }

    /// Returns the error of a cluster node that refused the connection, which the cluster client does not
    /// expose.
    async fn refusal(&self, seeds: &[Client]) -> Option<RedisError> {
        for seed in seeds {
            let refusal = match seed.get_multiplexed_async_connection_with_config(&self.options).await {
                Ok(conn) => Conn::Single(conn).send(redis::cmd("CLUSTER").arg("SLOTS")).await.err(),
                Err(error) => Some(error),
            };
            if refusal.as_ref().is_some_and(|error| !error.is_io_error()) {
                return refusal;
            }
        }
        None
    }

    /// Opens a connection that receives published messages. In a cluster any node will do, since each one
    /// receives all of them; `known` is asked for the nodes.
    pub(crate) async fn subscriber(&self, known: Option<Conn>) -> RedisResult<PubSub> {
        let client = match &self.client {
            ClientKind::Server(client) => client.clone(),
            ClientKind::Sentinel(sentinel) => sentinel.lock().await.async_get_client().await?,
            ClientKind::Cluster(_, seeds) => return subscriber_of_any(seeds, known).await,
        };
        client.get_async_pubsub().await
    }
}

async fn subscriber_of_any(seeds: &[Client], known: Option<Conn>) -> RedisResult<PubSub> {
    let mut nodes = Vec::new();
    if let (Some(mut conn), Some(seed)) = (known, seeds.first()) {
        nodes = masters(&mut conn, seed).await.unwrap_or_default();
        fastrand::shuffle(&mut nodes);
    }
    let mut last = RedisError::from((redis::ErrorKind::Client, "no node is known"));
    for node in nodes.iter().chain(seeds) {
        match node.get_async_pubsub().await {
            Ok(subscriber) => return Ok(subscriber),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Loads the scripts, which a restarted server has forgotten.
async fn load_scripts(conn: &mut MultiplexedConnection) -> RedisResult<()> {
    // Before it has logged in, a client may not send anything as large as a script.
    match redis::cmd("PING").query_async::<()>(conn).await {
        Err(error) if error.is_io_error() || error.code() == Some("NOAUTH") => return Err(error),
        _ => {}
    }
    let mut load = redis::pipe();
    for script in script::all() {
        load.add_command(script.load()).ignore();
    }
    match load.query_async::<()>(conn).await {
        // A refused script is reported when it is needed.
        Err(error) if error.is_io_error() => Err(error),
        _ => Ok(()),
    }
}

/// Returns the masters of a cluster, to be reached in the same way as this node.
async fn masters(conn: &mut Conn, like: &Client) -> RedisResult<Vec<Client>> {
    let slots = conn.send(redis::cmd("CLUSTER").arg("SLOTS")).await?;
    let mut addresses: Vec<_> =
        reply::list(slots).into_iter().flatten().filter_map(|range| master_of(range, like)).collect();
    addresses.dedup();
    addresses
        .into_iter()
        .map(|address| Client::open(like.get_connection_info().clone().set_addr(address)))
        .collect()
}

/// Returns the master from a range of slots, which consists of the first slot, the last slot, the master and
/// the replicas.
fn master_of(range: Value, like: &Client) -> Option<ConnectionAddr> {
    let master = reply::list(range).ok()?.into_iter().nth(2)?;
    let mut master = reply::list(master).ok()?.into_iter();
    let (host, port) = (reply::text(master.next()?).ok()?, reply::count(&master.next()?).ok()?);
    let host = Some(host).filter(|host| !host.is_empty())?;
    Some(with_host(like.get_connection_info().addr(), host, u16::try_from(port).ok()?))
}

impl ClientKind {
    fn new(config: &Config, certificates: Option<TlsCertificates>) -> RedisResult<Self> {
        Ok(match &config.topology {
            Topology::Server => Self::Server(client(config.connect.clone(), certificates.as_ref())?),
            Topology::Cluster => {
                let seeds =
                    config.addresses().into_iter().map(|address| config.connect.clone().set_addr(address));
                let seeds: Vec<_> = seeds.collect();
                let clients = seeds.iter().map(|seed| client(seed.clone(), certificates.as_ref()));
                let clients = clients.collect::<RedisResult<_>>()?;
                Self::Cluster(cluster(config, seeds, certificates)?, clients)
            }
            Topology::Sentinel(master) => {
                Self::Sentinel(tokio::sync::Mutex::new(sentinel(config, master, certificates)?))
            }
        })
    }
}

fn client(connect: ConnectionInfo, certificates: Option<&TlsCertificates>) -> RedisResult<Client> {
    match certificates {
        Some(certificates) => Client::build_with_tls(connect, certificates.clone()),
        None => Client::open(connect),
    }
}

fn cluster(
    config: &Config,
    seeds: Vec<ConnectionInfo>,
    certificates: Option<TlsCertificates>,
) -> RedisResult<ClusterClient> {
    let mut builder = ClusterClientBuilder::new(seeds)
        .connection_timeout(config.connect_timeout)
        .response_timeout(config.call_timeout)
        .tcp_settings(TcpSettings::default().set_nodelay(true))
        .retries(REDIRECTIONS)
        // The pause is constant, because one that grows would overflow after some sixty retries.
        .retry_wait_formula(REDIRECTION_PAUSE_MS, 1)
        .max_retry_wait(REDIRECTION_PAUSE_MS)
        .min_retry_wait(1);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    builder.build()
}

fn sentinel(
    config: &Config,
    master: &str,
    certificates: Option<TlsCertificates>,
) -> RedisResult<SentinelClient> {
    let settings = config.connect.redis_settings();
    let tcp = TcpSettings::default().set_nodelay(true);
    let mut builder = SentinelClientBuilder::new(config.addresses(), master, SentinelServerType::Master)?
        .set_client_to_redis_db(settings.db())
        .set_client_to_redis_tcp_settings(tcp);
    if let Some(user) = settings.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = settings.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if is_encrypted(config) {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(certificates) = certificates {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates);
    }
    builder.build()
}

fn is_encrypted(config: &Config) -> bool {
    matches!(config.connect.addr(), ConnectionAddr::TcpTls { .. })
}

/// Reads the files with certificates, if there are any.
async fn certificates(config: &Config) -> Result<Option<TlsCertificates>> {
    if is_encrypted(config) && rustls::crypto::CryptoProvider::get_default().is_none() {
        // If several providers are compiled into a program, rustls does not know which one to use.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let TlsFiles { authority, client } = &config.tls;
    if authority.is_none() && client.is_none() {
        return Ok(None);
    }
    let root_cert = match authority {
        Some(file) => Some(read(file).await?),
        None => None,
    };
    let client_tls = match client {
        Some((certificate, key)) => {
            Some(ClientTlsConfig { client_cert: read(certificate).await?, client_key: read(key).await? })
        }
        None => None,
    };
    Ok(Some(TlsCertificates { client_tls, root_cert }))
}

async fn read(file: &Path) -> Result<Vec<u8>> {
    let read = tokio::fs::read(file).await;
    read.map_err(|error| {
        ERRORS.invalid(format!("the certificate {} cannot be read", file.display())).with_source(error)
    })
}

impl Conn {
    /// Sends a command to the server that its key belongs to.
    pub(crate) async fn send(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        let answer = match self {
            Self::Single(conn) => conn.send_packed_command(cmd).await?,
            Self::Cluster(conn) => conn.req_packed_command(cmd).await?,
        };
        match answer {
            Value::ServerError(error) => Err(error.into()),
            answer => Ok(answer),
        }
    }

    /// Sends a command to each master.
    pub(crate) async fn send_to_each(&mut self, cmd: &Cmd) -> RedisResult<Vec<Value>> {
        let Self::Cluster(conn) = self else { return Ok(vec![self.send(cmd).await?]) };
        let to_all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        match conn.route_command(cmd.clone(), to_all).await? {
            Value::Map(answers) => Ok(answers.into_iter().map(|(_, answer)| answer).collect()),
            Value::ServerError(error) => Err(error.into()),
            answer => Ok(vec![answer]),
        }
    }
}
