//! The backends that can be soaked.

use std::error::Error;

use anyqueue_testkit::{Ministack, Postgres, RabbitMq, Redis, Server, start_if_installed};
use clap::ValueEnum;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A killed broker repeats an unfinished move between two of its queues only after this many milliseconds.
/// The default of three minutes is longer than the soak waits for missing messages.
const MOVED_AGAIN: &str = "-rabbit dead_letter_worker_publisher_confirm_timeout 3000";

/// A backend. All but SQLite have a server of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Postgres,
    Rabbitmq,
    Redis,
    Sqlite,
    Sqs,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Rabbitmq => "rabbitmq",
            Self::Redis => "redis",
            Self::Sqlite => "sqlite",
            Self::Sqs => "sqs",
        }
    }

    /// Returns whether the backend keeps no ends and no control entries, so that a store beside it has to.
    pub(crate) fn needs_store(self) -> bool {
        matches!(self, Self::Rabbitmq | Self::Sqs)
    }

    /// Starts a private server that loses nothing that it has acknowledged. `None` if it is not installed,
    /// which is reported, or if the backend has none.
    pub(crate) async fn start(self) -> Result<Option<Server>> {
        Ok(match self {
            Self::Postgres => start_if_installed(Postgres::new()).await?,
            Self::Rabbitmq => start_if_installed(RabbitMq::new().erlang_arguments(MOVED_AGAIN)).await?,
            Self::Redis => start_if_installed(Redis::new().setting("appendfsync", "always")).await?,
            Self::Sqlite => None,
            Self::Sqs => start_if_installed(Ministack::new().persistent()).await?,
        })
    }

    /// Kills the server, or stops it if it is the emulator of SQS, which otherwise would not keep what it
    /// acknowledged. Returns the word for that.
    pub(crate) async fn take_away(self, server: &Server) -> Result<&'static str> {
        if self == Self::Sqs {
            server.stop().await?;
            return Ok("stopped");
        }
        server.kill().await?;
        Ok("killed")
    }

    /// Returns the URL that clients open for the server at this URL, either its own or that of a proxy. They
    /// give a call up after `call_timeout_s` seconds.
    pub(crate) fn url(self, server: &str, call_timeout_s: u32) -> String {
        let url = match self {
            Self::Sqs => format!("sqs://test:test@us-east-1/soak?endpoint={server}"),
            _ => server.to_owned(),
        };
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}call_timeout={call_timeout_s}s")
    }
}
