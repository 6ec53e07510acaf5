//! The task that wakes waiting pulls for what this handle did not do itself: time, and other processes.
//!
//! Notifications make it quick. Polling makes it right: a notification is lost when the connection breaks, and none comes
//! through some proxies.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{PartitionId, Result};
use sqlx::postgres::{PgListener, PgNotification, PgPoolOptions};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::limits::JITTER;
use crate::notifier::Note;
use crate::pool::Pool;
use crate::sql::{Statements, get, int};
use crate::waiters::{Hint, Wake};

/// How many times as long as a slow look took nobody looks again.
const SPARED: u32 = 10;
/// How long until the server is tried again after it could not be asked.
const AFTER_ERROR: Duration = Duration::from_millis(250);

/// Looks at partitions that somebody waits for.
pub(crate) struct Poller {
    pub(crate) wake: Arc<Wake>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) poll_interval: Duration,
}

impl Poller {
    /// Runs until the handle closes. While nobody waits it sleeps.
    pub(crate) async fn serve(self, closed: CancellationToken) {
        let mut next_look = Instant::now();
        loop {
            if self.wake.is_unseen() {
                next_look = Instant::now();
            }
            let waited_for = self.wake.is_waited_for();
            tokio::select! {
                () = closed.cancelled() => return,
                () = self.wake.changed() => {}
                () = until(self.wake.next_due()), if waited_for => self.wake.fire(Instant::now()),
                () = tokio::time::sleep_until(next_look), if waited_for => {
                    next_look = Instant::now() + self.look_or_warn().await;
                }
            }
        }
    }

    async fn look_or_warn(&self) -> Duration {
        let began = Instant::now();
        match self.look().await {
            Ok(()) => {
                let pause = self.poll_interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * fastrand::f64());
                pause.max(began.elapsed() * SPARED)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot look for messages that others pushed");
                AFTER_ERROR
            }
        }
    }

    async fn look(&self) -> Result<()> {
        let waiting = self.wake.waiting();
        let names: Vec<String> = waiting.iter().map(|(partition, _)| partition.name().to_owned()).collect();
        let deads: Vec<bool> = waiting.iter().map(|(partition, _)| partition.is_dead_letters()).collect();
        let limits: Vec<i32> = waiting.iter().map(|(_, waiters)| int(*waiters)).collect();
        let query = self.statements.look.query().bind(names).bind(deads).bind(limits);
        for row in self.pool.fetch(query).await? {
            let number = usize::try_from(get::<i32>(&row, 0)?).unwrap_or(0);
            let Some((partition, _)) = number.checked_sub(1).and_then(|index| waiting.get(index)) else {
                continue;
            };
            let ready = usize::try_from(get::<i32>(&row, 1)?).unwrap_or(0);
            let due_ms = get::<Option<i64>>(&row, 2)?;
            let due = due_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
            self.wake.look(partition, ready, due);
        }
        Ok(())
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Receives notifications on a connection of its own, from the first wait until the handle closes.
pub(crate) struct Listener {
    pub(crate) wake: Arc<Wake>,
    pub(crate) config: Config,
    pub(crate) sender: u64,
    pub(crate) begin: CancellationToken,
}

impl Listener {
    pub(crate) async fn serve(self, closed: CancellationToken) {
        tokio::select! {
            () = closed.cancelled() => return,
            () = self.begin.cancelled() => {}
        }
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(self.config.connect_timeout)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_lazy_with(self.config.connect.clone());
        let listen = async {
            loop {
                let Err(error) = self.listen(&pool).await;
                tracing::debug!(%error, "no notifications for the moment: waiting pulls poll");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        };
        tokio::select! {
            () = closed.cancelled() => {}
            () = listen => {}
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), pool.close()).await;
    }

    /// Until the connection breaks. What was missed by then is found by looking.
    async fn listen(&self, pool: &sqlx::PgPool) -> Result<std::convert::Infallible, sqlx::Error> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.ignore_pool_close_event(true);
        listener.eager_reconnect(false);
        listener.listen(&self.config.schema.channel()).await?;
        self.look_at_all();
        loop {
            match listener.try_recv().await? {
                Some(notification) => self.receive(&notification),
                None => return Err(sqlx::Error::WorkerCrashed),
            }
        }
    }

    fn receive(&self, notification: &PgNotification) {
        if let Some(note) = Note::read(notification.payload())
            && note.sender != self.sender
        {
            self.wake.hint(&note.partition, note.hint);
        }
    }

    /// Notifications may have been missed.
    fn look_at_all(&self) {
        let all: Vec<(PartitionId, usize)> = self.wake.waiting();
        for (partition, _) in all {
            self.wake.hint(&partition, Hint::ready(1));
        }
    }
}
