//! The servers that can be soaked.

use std::sync::Arc;

use anyqueue::{Registry, Storage};
use anyqueue_testkit::{Postgres, RabbitMq, Redis, Server, start_if_installed};
use clap::ValueEnum;

use crate::Result;

/// A backend with a server of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Postgres,
    Rabbitmq,
    Redis,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Rabbitmq => "rabbitmq",
            Self::Redis => "redis",
        }
    }

    /// A private server that loses nothing it has acknowledged; `None` if it is not installed, which was said.
    pub(crate) async fn start(self) -> Result<Option<Server>> {
        Ok(match self {
            Self::Postgres => start_if_installed(Postgres::new()).await?,
            Self::Rabbitmq => start_if_installed(RabbitMq::new()).await?,
            Self::Redis => start_if_installed(Redis::new().setting("appendfsync", "always")).await?,
        })
    }

    /// Opens the storage at `url`, the server's own or one that goes through a proxy.
    pub(crate) async fn open(url: &str) -> Result<Arc<dyn Storage>> {
        let separator = if url.contains('?') { '&' } else { '?' };
        let registry = Registry::new()
            .with(anyqueue_postgres::backend())
            .with(anyqueue_rabbitmq::backend())
            .with(anyqueue_redis::backend());
        Ok(registry.open(&format!("{url}{separator}call_timeout=3s")).await?)
    }
}
