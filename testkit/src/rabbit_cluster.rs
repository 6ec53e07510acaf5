//! A RabbitMQ cluster of three nodes.

use crate::error::Result;
use crate::programs::{Epmd, RabbitMq};
use crate::provide::or_notice;
use crate::server::Server;

const NODES: usize = 3;

/// Three nodes, so that a quorum queue has a copy on each and survives the loss of one. Each is a [`Server`],
/// which a test can kill, freeze and restart.
#[derive(Debug)]
pub struct RabbitCluster {
    nodes: Vec<Server>,
    url: String,
    /// The nodes are dropped first.
    _port_mapper: Server,
}

impl RabbitCluster {
    /// Starts the nodes one after the other, each with these settings; the later ones join the first. Takes
    /// about twenty seconds.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start(rabbit: RabbitMq) -> Result<Self> {
        let port_mapper = Server::start(Epmd).await?;
        let mut nodes: Vec<Server> = Vec::new();
        for _ in 0..NODES {
            let names: Vec<_> = nodes.iter().map(|node| RabbitMq::node_name(node.addr())).collect();
            nodes.push(Server::start(rabbit.clone().cluster_node(port_mapper.addr(), &names)).await?);
        }
        let addrs: Vec<_> = nodes.iter().skip(1).map(|node| node.addr().to_string()).collect();
        let first = nodes.first().map(Server::url).unwrap_or_default();
        let url = format!("{first}?nodes={}", addrs.join(","));
        Ok(Self { nodes, url, _port_mapper: port_mapper })
    }

    /// Like [`start`](Self::start), but returns `None` if RabbitMQ is not installed, with a notice as from
    /// [`start_if_installed`](crate::start_if_installed).
    ///
    /// # Errors
    /// As [`start_if_installed`](crate::start_if_installed).
    pub async fn start_if_installed(rabbit: RabbitMq) -> Result<Option<Self>> {
        or_notice(Self::start(rabbit).await)
    }

    /// The URL at which clients reach the cluster: `amqp://…`, with all nodes.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The servers.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Returns the index in [`nodes`](Self::nodes) of the leader of this quorum queue of the virtual host
    /// `/`; `None` if there is no such queue.
    ///
    /// # Errors
    /// As [`RabbitMq::control`].
    pub async fn leader_of(&self, queue: &str) -> Result<Option<usize>> {
        let Some(first) = self.nodes.first() else { return Ok(None) };
        let list = ["list_queues", "--quiet", "--no-table-headers", "name", "leader"];
        let queues = RabbitMq::control(first, &list).await?;
        let line = queues.lines().find_map(|line| line.strip_prefix(queue)?.strip_prefix('\t'));
        let is_it = |node: &Server| Some(RabbitMq::node_name(node.addr()).as_str()) == line.map(str::trim);
        Ok(self.nodes.iter().position(is_it))
    }
}
