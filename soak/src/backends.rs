//! The servers that can be soaked.

use std::error::Error;
use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue_testkit::{Ministack, Postgres, RabbitMq, Redis, Server, start_if_installed};
use clap::ValueEnum;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A killed broker repeats an unfinished move between two of its queues only after this many milliseconds. The default of three minutes is
/// longer than the soak waits for missing messages.
const MOVED_AGAIN: &str = "-rabbit dead_letter_worker_publisher_confirm_timeout 3000";

/// A backend with a server of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Postgres,
    Rabbitmq,
    Redis,
    Sqs,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Rabbitmq => "rabbitmq",
            Self::Redis => "redis",
            Self::Sqs => "sqs",
        }
    }

    /// A private server that loses nothing it has acknowledged; `None` if it is not installed, which is reported.
    pub(crate) async fn start(self) -> Result<Option<Server>> {
        Ok(match self {
            Self::Postgres => start_if_installed(Postgres::new()).await?,
            Self::Rabbitmq => start_if_installed(RabbitMq::new().erlang_arguments(MOVED_AGAIN)).await?,
            Self::Redis => start_if_installed(Redis::new().setting("appendfsync", "always")).await?,
            Self::Sqs => start_if_installed(Ministack::new().persistent()).await?,
        })
    }

    /// Ends the server at once, and returns the word for that. The emulator of SQS keeps what it acknowledged only if it is stopped in
    /// order.
    pub(crate) async fn take_away(self, server: &Server) -> Result<&'static str> {
        match self {
            Self::Postgres | Self::Rabbitmq | Self::Redis => server.kill().await?,
            Self::Sqs => {
                server.stop().await?;
                return Ok("stopped");
            }
        }
        Ok("killed")
    }

    /// Opens the storage at `url`, the server's own or one that goes through a proxy.
    pub(crate) async fn open(self, url: &str) -> Result<Arc<dyn Storage>> {
        let url = match self {
            Self::Postgres | Self::Rabbitmq | Self::Redis => url.to_owned(),
            Self::Sqs => format!("sqs://test:test@us-east-1/soak?endpoint={url}"),
        };
        let separator = if url.contains('?') { '&' } else { '?' };
        Ok(anyqueue_backends::open(&format!("{url}{separator}call_timeout=3s")).await?)
    }
}
