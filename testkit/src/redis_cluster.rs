//! A Redis Cluster: three masters with a replica each.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{Doing, Result};
use crate::programs::Redis;
use crate::programs::wire;
use crate::provide::or_notice;
use crate::server::Server;

const MASTERS: usize = 3;
const SLOTS: usize = 16384;
/// How long the nodes may take to agree.
const FORM_LIMIT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);

/// Six servers that form a cluster: three masters, each with a replica that takes over when its master has
/// been gone for five seconds (or `cluster-node-timeout` milliseconds). Each is a [`Server`], which a test
/// can kill, freeze and restart. Needs Redis 7.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Server>,
    url: String,
}

impl RedisCluster {
    /// Starts the servers, each with these settings, and returns once they all know each other.
    ///
    /// # Errors
    /// As [`Server::start`]; or the reply of a node that refused to join.
    pub async fn start(redis: Redis) -> Result<Self> {
        let redis = redis.cluster_node();
        let mut nodes = Vec::new();
        for _ in 0..2 * MASTERS {
            nodes.push(Server::start(redis.clone()).await?);
        }
        form(&nodes).await.doing(|| "form a Redis Cluster".to_owned())?;
        let addrs: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let (first, others) = addrs.split_at(1);
        let url = format!("redis-cluster://{}/?nodes={}", first.concat(), others.join(","));
        Ok(Self { nodes, url })
    }

    /// Like [`start`](Self::start), but returns `None` if Redis is not installed, with a notice as from
    /// [`start_if_installed`](crate::start_if_installed).
    ///
    /// # Errors
    /// As [`start_if_installed`](crate::start_if_installed).
    pub async fn start_if_installed(redis: Redis) -> Result<Option<Self>> {
        or_notice(Self::start(redis).await)
    }

    /// The URL at which clients reach the cluster: `redis-cluster://…`, with all nodes.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The servers. The first three started as masters, the last three as their replicas, in the same order;
    /// a failover changes that.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }
}

async fn form(nodes: &[Server]) -> io::Result<()> {
    let addrs: Vec<_> = nodes.iter().map(Server::addr).collect();
    let (masters, replicas) = addrs.split_at(MASTERS);
    let mut ids = Vec::new();
    for (index, addr) in masters.iter().enumerate() {
        let (first, last) = (SLOTS * index / MASTERS, SLOTS * (index + 1) / MASTERS - 1);
        wire::redis(*addr, &format!("CLUSTER ADDSLOTSRANGE {first} {last}")).await?;
        wire::redis(*addr, &format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1)).await?;
        ids.push(wire::redis(*addr, "CLUSTER MYID").await?);
    }
    for (node, next) in nodes.iter().zip(nodes.iter().skip(1)) {
        let (addr, bus) = (next.addr(), next.port(1).port());
        wire::redis(node.addr(), &format!("CLUSTER MEET {} {} {bus}", addr.ip(), addr.port())).await?;
    }
    until_each(&addrs, |nodes| nodes.lines().count() == 2 * MASTERS && !nodes.contains("handshake")).await?;
    for (addr, master) in replicas.iter().zip(&ids) {
        wire::redis(*addr, &format!("CLUSTER REPLICATE {master}")).await?;
    }
    until_each(&addrs, |nodes| nodes.lines().filter(|node| node.contains("slave")).count() == MASTERS)
        .await?;
    for addr in &addrs {
        until(*addr, "CLUSTER INFO", |info| info.contains("cluster_state:ok")).await?;
    }
    for addr in replicas {
        until(*addr, "INFO replication", |info| info.contains("master_link_status:up")).await?;
    }
    Ok(())
}

/// Waits until each node sees the nodes like this.
async fn until_each(addrs: &[SocketAddr], seen: impl Fn(&str) -> bool) -> io::Result<()> {
    for addr in addrs {
        until(*addr, "CLUSTER NODES", &seen).await?;
    }
    Ok(())
}

async fn until(addr: SocketAddr, command: &str, met: impl Fn(&str) -> bool) -> io::Result<()> {
    let deadline = Instant::now() + FORM_LIMIT;
    loop {
        let answer = wire::redis(addr, command).await?;
        if met(&answer) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(io::Error::other(format!(
                "the nodes did not agree in time: {command} says {answer}"
            )));
        }
        sleep(POLL).await;
    }
}
