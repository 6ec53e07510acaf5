//! The task that wakes waiting pulls for what this handle did not do itself: delays and leases that end, and
//! the work of other processes.
//!
//! Notifications make it fast. Polling makes it correct: a notification is lost when the connection breaks,
//! and some proxies let none through.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyqueue::adapter::{EndWatches, Hint, Waiters};
use anyqueue::{PartitionId, Result};
use sqlx::postgres::{PgListener, PgNotification, PgPoolOptions};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::limits::JITTER;
use crate::notifier::{Note, split};
use crate::pool::Pool;
use crate::sql::{Statements, get, int};

/// After a slow look, polling pauses for this many times its duration.
const SPARED: u32 = 10;
/// How long to wait before looking again for messages that are due but locked by another call.
const LOCKED_PAUSE: Duration = Duration::from_millis(5);
/// The pause doubles up to this, which is within the slack.
const LOCKED_PAUSE_MAX: Duration = Duration::from_millis(100);
/// How long after a failed look the server is asked again.
const AFTER_ERROR: Duration = Duration::from_millis(250);

/// Looks at the partitions that pulls wait for.
pub(crate) struct Poller {
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) poll_interval: Duration,
    pub(crate) locked: LockedPauses,
}

impl Poller {
    /// Runs until the handle closes. While no pull waits it sleeps.
    pub(crate) async fn serve(self, closed: CancellationToken) {
        tokio::select! {
            () = closed.cancelled() => {}
            () = self.waiters.watch(Duration::ZERO, || self.look_or_warn()) => {}
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
        let waiting = self.waiters.partitions();
        self.locked.keep(&waiting);
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
            let due = self.locked.next(partition, due);
            self.waiters.hint(partition, Hint { ready, due });
        }
        Ok(())
    }
}

/// How long to wait before looking again for messages that are due, but locked by another call.
#[derive(Debug, Default)]
pub(crate) struct LockedPauses(Mutex<HashMap<PartitionId, Duration>>);

impl LockedPauses {
    /// Forgets partitions that no pull waits for.
    fn keep(&self, waiting: &[(PartitionId, usize)]) {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.retain(|partition, _| waiting.iter().any(|(kept, _)| kept == partition));
    }

    /// Returns how long to wait before looking again. Overdue messages are looked for at once. If they are
    /// still there at the next look, another call has them locked, and asking again without a pause would be
    /// a busy loop. So there is a pause, which doubles each time.
    fn next(&self, partition: &PartitionId, due: Option<Duration>) -> Option<Duration> {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = pauses.remove(partition).unwrap_or_default();
        if due.is_some_and(|due| due.is_zero()) {
            pauses.insert(partition.clone(), (pause * 2).clamp(LOCKED_PAUSE, LOCKED_PAUSE_MAX));
        }
        due.map(|due| due.max(pause))
    }
}

/// Receives notifications on its own connection, from the first wait until the handle closes.
pub(crate) struct Listener {
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) end_watches: Arc<EndWatches>,
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

    /// Listens until the connection breaks. Notifications missed until then are made up for by a look.
    async fn listen(&self, pool: &sqlx::PgPool) -> Result<std::convert::Infallible, sqlx::Error> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.ignore_pool_close_event(true);
        listener.eager_reconnect(false);
        listener.listen(&self.config.schema.channel()).await?;
        self.waiters.wake_each(1); // notifications may have been missed
        self.end_watches.missed();
        loop {
            match listener.try_recv().await? {
                Some(notification) => self.receive(&notification),
                None => return Err(sqlx::Error::WorkerCrashed),
            }
        }
    }

    fn receive(&self, notification: &PgNotification) {
        let text = notification.payload();
        let Some((sender, news)) = split(text) else { return };
        if sender == self.sender || self.end_watches.hear(news) {
            return;
        }
        if let Some(note) = Note::read(text) {
            self.waiters.hint(&note.partition, note.hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_overdue_is_looked_for_at_once_and_then_less_and_less_often() {
        let (locked, mail) = (LockedPauses::default(), PartitionId::new("mail").unwrap());
        let next = |due| locked.next(&mail, Some(due)).unwrap();
        let pauses: Vec<Duration> = (0..9).map(|_| next(Duration::ZERO)).collect();
        assert_eq!(pauses.first(), Some(&Duration::ZERO));
        assert!(pauses.iter().all(|pause| *pause <= LOCKED_PAUSE_MAX));
        assert!(pauses.iter().sum::<Duration>() > 3 * LOCKED_PAUSE_MAX, "{pauses:?}");
        next(LOCKED_PAUSE_MAX);
        assert_eq!(
            next(Duration::ZERO),
            Duration::ZERO,
            "what came to be overdue since is looked for at once"
        );
        locked.next(&mail, None);
        assert_eq!(next(Duration::ZERO), Duration::ZERO, "and so is what comes after nothing was due");
        locked.keep(&[]);
        assert_eq!(next(Duration::ZERO), Duration::ZERO);
    }
}
