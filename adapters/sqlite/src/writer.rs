//! The one thread that writes: it joins the requests that wait into one transaction (group commit).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::Waiters;
use anyqueue::{ErrorKind, Result};
use rusqlite::Connection;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Synchronous};
use crate::connect;
use crate::ending::Ending;
use crate::error::ERRORS;
use crate::group::{self, Failure};
use crate::job::{Answer, Claim, Claimed, Job, QUEUED, Work};
use crate::lookout;
use crate::room;
use crate::tx::{Hints, Parts};

/// How long requests may gather. Counted in time, not in turns: on a busy machine one turn can last milliseconds.
const GATHER: Duration = Duration::from_micros(200);
/// Bytes of messages after which no more requests join a transaction.
const GROUP_BYTES: usize = 32 * 1024 * 1024;

/// How closing ended; `None` while open.
pub(crate) type Closing = watch::Sender<Option<Result<()>>>;

/// The writer's state.
pub(crate) struct Writer {
    pub(crate) config: Config,
    pub(crate) conn: Option<Connection>,
    /// Whether commits of the connection are flushed to the disk now.
    pub(crate) flushes: bool,
    pub(crate) waiters: Arc<Waiters<i64>>,
    pub(crate) parts: Parts,
    /// Where what nobody took is released.
    pub(crate) jobs: mpsc::WeakSender<Job>,
}

impl Writer {
    /// Starts it, and the lookout, on a thread of their own: SQLite's calls block.
    pub(crate) fn start(
        self,
        jobs: mpsc::Receiver<Job>,
        closed: CancellationToken,
        closing: Closing,
    ) -> Result<()> {
        let failed = |error: std::io::Error| {
            ERRORS.error(ErrorKind::Unavailable, "no thread for the writer").with_source(error)
        };
        let look = lookout::serve(Arc::clone(&self.waiters), self.config.clone(), closed.clone());
        // The thread first: a runtime that no thread can be had for would panic when it is dropped here, within another one.
        let (give, take) = std::sync::mpsc::sync_channel::<Runtime>(1);
        let serve = move || {
            if let Ok(runtime) = take.recv() {
                let look = runtime.spawn(look);
                runtime.block_on(self.serve(jobs, closed, closing, look));
            }
        };
        std::thread::Builder::new().name("anyqueue-sqlite".to_owned()).spawn(serve).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        give.send(runtime).map_err(|_| ERRORS.error(ErrorKind::Internal, "the writer's thread ended"))
    }

    /// Serves until the handle closes and everything queued is done.
    async fn serve(
        mut self,
        mut jobs: mpsc::Receiver<Job>,
        closed: CancellationToken,
        closing: Closing,
        look: JoinHandle<()>,
    ) {
        let mut last = 0;
        loop {
            let first = tokio::select! {
                biased;
                job = jobs.recv() => job,
                () = closed.cancelled(), if !jobs.is_closed() => {
                    jobs.close();
                    continue;
                }
            };
            let Some(first) = first else { break };
            let group = gather(first, &mut jobs, last);
            last = group.len();
            let group = self.refuse_if_full(group);
            self.process(group);
        }
        // Its connection first: whoever closes last takes the log away, and the process may end right after.
        drop(look.await);
        let end = match (self.conn.take(), self.look()) {
            (Some(conn), Ok(())) => connect::checkpoint_and_close(conn),
            (None, _) => Ok(()),
            // The log may be another file's by now: it is not this handle's to write back, and SQLite knows that too.
            (Some(conn), Err(error)) => {
                tracing::warn!(%error, "closed without writing back the log");
                drop(conn);
                Ok(())
            }
        };
        closing.send_replace(Some(end));
    }

    /// Refuses what would leave no room for taking messages out: pushes, recorded ends, and settlements that bring successors or results.
    fn refuse_if_full(&self, group: Vec<Job>) -> Vec<Job> {
        if !group.iter().any(|job| job.work.needs_room())
            || self.conn.as_ref().is_none_or(|conn| room::is_left(conn, &self.config.path))
        {
            return group;
        }
        let only_stores = |job: &Job| !matches!(job.work, Work::Settle { .. }) && job.work.needs_room();
        let (refused, mut others): (Vec<_>, Vec<_>) = group.into_iter().partition(only_stores);
        for job in refused {
            self.answer(job, Err(room::full()));
        }
        for job in &mut others {
            if let Work::Settle { endings, .. } = &mut job.work {
                for ending in endings {
                    ending.refuse_room(&room::full());
                }
            }
        }
        others
    }

    fn process(&mut self, mut group: Vec<Job>) {
        for job in &mut group {
            if let Work::Settle { claim, .. } = &mut job.work
                && job.reply.is_closed()
            {
                *claim = None; // nobody is there to take the messages
            }
        }
        let works: Vec<&Work> = group.iter().map(|job| &job.work).collect();
        if works.is_empty() {
            return;
        }
        match self.transact(&works) {
            Ok(answers) => {
                for (job, answer) in group.into_iter().zip(answers) {
                    self.answer(job, Ok(answer));
                }
            }
            Err(failure) if failure.at_begin => {
                for job in group {
                    self.answer(job, Err(failure.error.clone()));
                }
            }
            // One of them spoiled it: each by itself, so that only that one fails.
            Err(failure) => {
                let mut failed = Some(failure).filter(|_| group.len() == 1);
                for job in group {
                    let outcome = self.alone(&job.work, failed.take());
                    self.answer(job, outcome.map_err(|failure| failure.error));
                }
            }
        }
    }

    /// One request by itself. What takes messages out of a full file may go a little beyond its limit, and gets the room
    /// that the log takes.
    fn alone(&mut self, work: &Work, failed: Option<Failure>) -> Result<Answer, Failure> {
        let mut outcome = failed.map_or_else(|| self.transact_one(work), Err);
        if !work.needs_room()
            && outcome.as_ref().is_err_and(|failure| failure.error.kind() == ErrorKind::Full)
        {
            outcome = self.with_reserve(work);
        }
        match (outcome, work) {
            (Err(failure), Work::Settle { endings, claim }) if !failure.at_begin && work.can_be_parted() => {
                self.in_parts(endings, claim.as_ref())
            }
            (outcome, _) => outcome,
        }
    }

    /// Ends of which one brings what may have spoiled it for all: each such end by itself, and then the claim.
    fn in_parts(&mut self, endings: &[Ending], claim: Option<&Claim>) -> Result<Answer, Failure> {
        let mut outcomes = Vec::with_capacity(endings.len());
        for part in endings.chunk_by(|a, b| !a.brings_any() && !b.brings_any()) {
            match self.alone(&Work::Settle { endings: part.to_vec(), claim: None }, None) {
                Ok(Answer::Settle(done, _)) => outcomes.extend(done),
                Ok(_) => return Err(no_answer()),
                // The others would wait as long, and fail too.
                Err(failure) if failure.at_begin => {
                    outcomes.resize(endings.len(), Err(failure.error));
                    break;
                }
                Err(failure) => outcomes.resize(outcomes.len() + part.len(), Err(failure.error)),
            }
        }
        let Some(claim) = claim else { return Ok(Answer::Settle(outcomes, Ok(Claimed::default()))) };
        match self.alone(&Work::Settle { endings: Vec::new(), claim: Some(claim.clone()) }, None) {
            Ok(Answer::Settle(_, claimed)) => Ok(Answer::Settle(outcomes, claimed)),
            Ok(_) => Err(no_answer()),
            Err(failure) => Ok(Answer::Settle(outcomes, Err(failure.error))),
        }
    }

    /// What takes messages out of a full file, with the room that is kept for that.
    fn with_reserve(&mut self, work: &Work) -> Result<Answer, Failure> {
        let failed = |error| Failure { error, at_begin: false };
        self.limit_size(true).map_err(failed)?;
        self.conn.as_ref().map_or(Ok(()), connect::checkpoint).map_err(failed)?;
        let outcome = self.transact_one(work);
        self.limit_size(false).map_err(failed)?;
        outcome
    }

    fn limit_size(&self, reserve: bool) -> Result<()> {
        self.conn.as_ref().map_or(Ok(()), |conn| connect::limit_size(conn, &self.config, reserve))
    }

    fn transact_one(&mut self, work: &Work) -> Result<Answer, Failure> {
        self.transact(&[work])?.pop().ok_or_else(no_answer)
    }

    /// Does everything in one transaction. Only after its commit is anybody answered or woken.
    fn transact(&mut self, works: &[&Work]) -> Result<Vec<Answer>, Failure> {
        let (answers, hints) = self.attempt(works).inspect_err(|_| self.roll_back())?;
        // Looked at after the commit: what is acknowledged was in the file that has the name, not in one that had it.
        self.look().map_err(|error| Failure { error, at_begin: true })?;
        hints.give(&self.waiters);
        Ok(answers)
    }

    /// Fails if the path leads to another file by now than the one that is written to.
    fn look(&self) -> Result<()> {
        self.config.identity.look(&self.config.path)
    }

    fn attempt(&mut self, works: &[&Work]) -> Result<(Vec<Answer>, Hints), Failure> {
        let flush = self.config.synchronous == Synchronous::Full && works.iter().any(|work| work.must_last());
        let at_begin = |error| Failure { error, at_begin: true };
        self.config.identity.look_at_database(&self.config.path).map_err(at_begin)?;
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.connect().map_err(at_begin)?,
        };
        let conn = self.conn.insert(conn);
        if flush != self.flushes {
            connect::flush_commits(conn, flush).map_err(at_begin)?;
            self.flushes = flush;
        }
        group::run(conn, &mut self.parts, &self.config, works)
    }

    fn connect(&mut self) -> Result<Connection> {
        self.flushes = self.config.synchronous == Synchronous::Full;
        let conn = connect::writer(&self.config)?;
        self.config.identity.learn_logs(&self.config.path);
        Ok(conn)
    }

    /// SQLite may have rolled back by itself. Where it cannot be brought to a known state, begin afresh.
    fn roll_back(&mut self) {
        self.parts.clear();
        let rolled_back = |conn: &Connection| conn.is_autocommit() || conn.execute_batch("ROLLBACK").is_ok();
        self.conn = self.conn.take().filter(rolled_back);
        if self.conn.is_none() {
            self.config.identity.forget_logs();
        }
    }

    fn answer(&self, job: Job, mut outcome: Result<Answer>) {
        if let (Ok(Answer::Settle(_, Ok(claimed))), Work::Settle { claim: Some(claim), .. }) =
            (&mut outcome, job.work)
        {
            claimed.return_to(self.jobs.clone(), claim.partition);
        }
        drop(job.reply.send(outcome)); // who asked may be gone
    }
}

fn no_answer() -> Failure {
    Failure { error: ERRORS.error(ErrorKind::Internal, "the writer gave no answer"), at_begin: false }
}

/// The first request and those that wait behind it. Those just answered (`last`) are about to ask again: a moment is spent
/// on letting them come along, which costs far less than another commit. A lone caller does not wait.
fn gather(first: Job, jobs: &mut mpsc::Receiver<Job>, last: usize) -> Vec<Job> {
    let mut bytes = first.work.bytes();
    let mut group = vec![first];
    let end = Instant::now() + GATHER;
    while group.len() < QUEUED && bytes < GROUP_BYTES {
        match jobs.try_recv() {
            Ok(job) => {
                bytes += job.work.bytes();
                group.push(job);
            }
            Err(_) if group.len() < last && Instant::now() < end => std::thread::yield_now(),
            Err(_) => break,
        }
    }
    group
}
