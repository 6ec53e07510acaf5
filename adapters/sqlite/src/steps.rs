//! Steps of the host's clock.
//!
//! Leases end at a time of day, on which all processes of the host agree. Their holders rely on a monotonic
//! clock, which cannot be set. When the time of day is set, the two diverge. So the file records how far one
//! clock is ahead of the other. The first transaction that finds a different distance shifts the ends of all
//! leases and control entries accordingly, under the write lock.

use std::sync::Arc;

use anyqueue::{Clock, Result};
use rusqlite::Connection;

use crate::limits::LEASE;
use crate::now::Now;
use crate::sql::{first, run};

/// A difference of at least this many milliseconds is a step. Smaller ones come from reading two clocks one
/// after the other.
const STEP_MS: i64 = 250;
/// A reading that took longer than this is not used.
const PROMPT_MS: i64 = 50;

/// Scans everything that waits for a moment, which is acceptable for a step of the clock. A lease that ends
/// later than any lease could was claimed under another clock, before the host was started, and is left
/// alone.
const MOVE_LEASES: &str = "UPDATE anyqueue_timed SET at_ms = at_ms + ?1 WHERE state = 1 AND at_ms <= ?2";
/// Shifts the ends of control entries, however late they are, except where the result could not be
/// represented.
const MOVE_ENTRIES: &str = "UPDATE anyqueue_control SET expires_ms = expires_ms + ?1 WHERE expires_ms < 9223372036854775807 - max(?1, 0)";
const NOTED: &str = "SELECT boot IS ?, ahead_ms FROM anyqueue_counter";
const STORE: &str = "UPDATE anyqueue_counter SET boot = ?, ahead_ms = ?";

/// The monotonic clock, which cannot be set.
#[derive(Clone, Debug)]
pub(crate) struct Steady {
    /// The origin of its time: the start of the host, and the time namespace of this process.
    boot: Arc<str>,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    #[cfg(target_os = "linux")]
    Host,
    #[cfg(test)]
    Test(Arc<std::sync::atomic::AtomicI64>),
}

impl Steady {
    /// The host's clock, if one start of the host can be distinguished from another.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_host() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let space = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let boot = format!("{} {}", boot.trim(), space.display()).into();
        Some(Self { boot, source: Source::Host })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of_host() -> Option<Self> {
        None
    }

    fn ms(&self) -> i64 {
        match &self.source {
            #[cfg(target_os = "linux")]
            Source::Host => {
                // Like the clock of the holders, it stands still while the host is suspended.
                let since = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                since.tv_sec.saturating_mul(1000).saturating_add(since.tv_nsec / 1_000_000)
            }
            #[cfg(test)]
            Source::Test(ms) => ms.load(std::sync::atomic::Ordering::SeqCst),
            #[cfg(not(any(test, target_os = "linux")))]
            _ => 0,
        }
    }
}

/// What the file records about the two clocks.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Whether it was recorded since the host was started.
    pub(crate) of_this_boot: bool,
    pub(crate) ahead_ms: Option<i64>,
}

/// Both clocks, read at the same moment.
#[derive(Debug)]
pub(crate) struct Reading<'s> {
    steady: &'s Steady,
    pub(crate) now: Now,
    ahead_ms: i64,
}

/// Reads the time of day and how far it is ahead of the steady clock, if both could be read at the same
/// moment.
pub(crate) fn read<'s>(clock: &Clock, steady: Option<&'s Steady>) -> (Now, Option<Reading<'s>>) {
    let Some(steady) = steady else { return (Now::of(clock), None) };
    let before_ms = steady.ms();
    let now = Now::of(clock);
    let prompt = steady.ms().saturating_sub(before_ms) <= PROMPT_MS;
    let reading = Reading { steady, now, ahead_ms: now.ms.saturating_sub(before_ms) };
    (now, prompt.then_some(reading))
}

/// What the file records as this start of the host.
pub(crate) fn boot(steady: Option<&Steady>) -> Option<&str> {
    steady.map(|steady| &*steady.boot)
}

/// The time of day by which control entries expire. After a step for which no transaction has shifted them
/// yet, it is the time before the step. Within a transaction this begins the snapshot, so that nothing in it
/// is later than this time.
pub(crate) fn file_ms(conn: &Connection, clock: &Clock, steady: Option<&Steady>) -> Result<i64> {
    let noted = first(conn, NOTED, [boot(steady)], |row| {
        Ok(Noted { of_this_boot: row.get(0)?, ahead_ms: row.get(1)? })
    })?;
    let (now, reading) = read(clock, steady);
    let step_ms = reading.zip(noted).and_then(|(reading, noted)| reading.step_ms(&noted));
    Ok(now.ms.saturating_sub(step_ms.unwrap_or(0)))
}

impl Reading<'_> {
    /// By how much the clock was set; `None` if nothing was recorded since the host was started.
    fn step_ms(&self, noted: &Noted) -> Option<i64> {
        let ahead_ms = noted.ahead_ms.filter(|_| noted.of_this_boot)?;
        let step_ms = self.ahead_ms.saturating_sub(ahead_ms);
        Some(if step_ms.abs() < STEP_MS { 0 } else { step_ms })
    }

    /// Shifts all leases and control entries by a step of the clock. Must run first under the write lock.
    pub(crate) fn apply(&self, conn: &Connection, noted: &Noted) -> Result<()> {
        if let Some(step_ms) = self.step_ms(noted) {
            if step_ms == 0 {
                return Ok(());
            }
            let longest = i64::try_from(LEASE.max.as_millis()).unwrap_or(i64::MAX);
            let last_ms = self.now.ms.saturating_sub(step_ms).saturating_add(longest);
            let moved = run(conn, MOVE_LEASES, (step_ms, last_ms))?;
            run(conn, MOVE_ENTRIES, [step_ms])?;
            tracing::warn!(
                step_ms,
                moved,
                "the host's clock was set: leases and control entries moved along, delays did not"
            );
        }
        run(conn, STORE, (&*self.steady.boot, self.ahead_ms)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
    use std::time::Duration;

    use anyqueue::Page;
    use anyqueue::adapter::{
        Action, ControlStorage, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement,
    };
    use anyqueue::control::{Applied, Change, Expect, Key};
    use anyqueue::{ManualClock, MessageData, PartitionId, SettleOutcome};

    use super::*;
    use crate::SqliteQueue;

    const LEASE: Duration = Duration::from_secs(30);
    const STEP: Duration = Duration::from_mins(1);

    /// A host whose clocks are set by the test, and two processes on one file.
    struct Host {
        clock: ManualClock,
        steady: Arc<AtomicI64>,
        dir: tempfile::TempDir,
    }

    impl Host {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { clock: ManualClock::new(), steady: Arc::default(), dir }
        }

        async fn open(&self, boot: &str) -> SqliteQueue {
            let mut config = SqliteQueue::builder(self.dir.path().join("q.db")).clock(self.clock.clock()).0;
            config.steady = Some(Steady { boot: boot.into(), source: Source::Test(self.steady.clone()) });
            SqliteQueue::from_config(config).await.unwrap()
        }

        fn pass(&self, time: Duration) {
            self.clock.advance(time);
            self.set_back(time);
        }

        /// Lets time pass while the time of day stands still.
        fn set_back(&self, time: Duration) {
            self.steady.fetch_add(i64::try_from(time.as_millis()).unwrap(), SeqCst);
        }
    }

    async fn pull(queue: &SqliteQueue) -> Vec<RawDelivery> {
        let request = PullRequest::new(9, Duration::ZERO, LEASE);
        queue.pull(&PartitionId::new("p").unwrap(), request).await.unwrap()
    }

    async fn held_by_one_of_two(host: &Host) -> (SqliteQueue, SqliteQueue, RawDelivery) {
        let (a, b) = (host.open("first").await, host.open("first").await);
        let outcomes = a.push(&PartitionId::new("p").unwrap(), &[MessageData::new("m")]).await;
        assert!(outcomes.iter().all(Result::is_ok));
        let held = pull(&a).await.remove(0);
        (a, b, held)
    }

    #[tokio::test]
    async fn a_step_forward_gives_no_lease_away_and_none_lasts_longer() {
        let host = Host::new();
        let (a, b, held) = held_by_one_of_two(&host).await;
        host.clock.advance(STEP);
        assert!(pull(&b).await.is_empty(), "its holder trusts it still");
        host.pass(LEASE / 2);
        let settlement = Settlement::new(held.lease, Action::Release);
        let outcome = a.settle(&[settlement]).await.remove(0).unwrap();
        assert_eq!(outcome, SettleOutcome::Settled);
        let held = pull(&a).await;
        host.clock.advance(STEP);
        assert!(pull(&b).await.is_empty());
        host.pass(LEASE);
        assert_eq!((held.len(), pull(&b).await.len()), (1, 1), "it ends when it should");
    }

    #[tokio::test]
    async fn a_step_back_holds_up_no_message_of_a_process_that_died() {
        let host = Host::new();
        let (_, b, _) = held_by_one_of_two(&host).await;
        host.set_back(STEP);
        assert_eq!(pull(&b).await.len(), 1, "a minute has passed, and the lease is over");
    }

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    async fn put(queue: &SqliteQueue, name: &str, ttl: Duration) {
        let change = Change::put(key(name), Expect::Any, name.to_owned()).with_ttl(ttl);
        assert!(queue.apply(&[change]).await.unwrap().value.iter().all(Applied::is_done));
    }

    /// How long an entry will still exist, according to both `get` and `list`.
    async fn left(queue: &SqliteQueue, name: &str) -> Option<Duration> {
        let got = queue.get(&[key(name)]).await.unwrap();
        let listed = queue.list(name, Page::of(1)).await.unwrap();
        assert_eq!(got.value[0], listed.value.first().cloned());
        let ends_at = got.value[0].as_ref()?.expires_at?;
        Some(ends_at.duration_since(got.now).unwrap())
    }

    #[tokio::test]
    async fn control_entries_stay_as_long_as_they_should_whichever_way_the_clock_is_set() {
        let host = Host::new();
        let (a, b) = (host.open("first").await, host.open("first").await);
        put(&a, "w", LEASE).await;
        host.clock.advance(STEP);
        assert_eq!(left(&b, "w").await, Some(LEASE), "a reader knows of the step before a writer does");
        put(&b, "other", Duration::MAX).await;
        assert_eq!(left(&a, "w").await, Some(LEASE), "a writer has moved it along");
        assert_eq!(b.get(&[key("other")]).await.unwrap().value[0].as_ref().unwrap().expires_at, None);
        host.pass(LEASE / 2);
        assert_eq!(left(&b, "w").await, Some(LEASE / 2));
        host.set_back(LEASE / 2);
        assert_eq!(left(&a, "w").await, None, "its time has passed, though the clock does not say so");
        put(&a, "v", LEASE).await;
        host.set_back(LEASE / 2);
        put(&a, "other", Duration::MAX).await;
        assert_eq!(left(&b, "v").await, Some(LEASE / 2), "it was moved back");
    }

    #[tokio::test]
    async fn without_a_step_and_after_a_restart_leases_end_by_the_time_of_day() {
        let host = Host::new();
        let (a, b, _) = held_by_one_of_two(&host).await;
        host.pass(LEASE / 2);
        assert!(pull(&b).await.is_empty());
        host.pass(LEASE / 2);
        assert_eq!(pull(&b).await.len(), 1);
        drop((a, b));
        host.steady.store(0, SeqCst);
        let later = host.open("second").await;
        assert!(pull(&later).await.is_empty(), "as long as it would have lasted");
        host.pass(LEASE);
        assert_eq!(pull(&later).await.len(), 1);
    }
}
