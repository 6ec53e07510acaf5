//! The only thread that writes. It puts waiting requests into one transaction (group commit).

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

/// How long requests may gather. It is a time, not a number of turns, because one turn can last milliseconds
/// on a busy machine.
const GATHER: Duration = Duration::from_micros(200);
/// No more requests join a transaction once it has this many bytes of messages.
const GROUP_BYTES: usize = 32 * 1024 * 1024;

/// The result of closing; `None` while open.
pub(crate) type Closing = watch::Sender<Option<Result<()>>>;

/// The writer's state.
pub(crate) struct Writer {
    pub(crate) config: Config,
    pub(crate) conn: Option<Connection>,
    /// Whether the connection currently flushes its commits to the disk.
    pub(crate) flushes: bool,
    pub(crate) waiters: Arc<Waiters<i64>>,
    pub(crate) parts: Parts,
    /// Where messages that nobody took are released.
    pub(crate) jobs: mpsc::WeakSender<Job>,
}

impl Writer {
    /// Starts the writer and the lookout on their own thread, because SQLite's calls block.
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
        // The thread is started first: without it the runtime would be dropped here, within another runtime,
        // and panic.
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

    /// Serves requests until the handle is closed and the queue is empty.
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
        // The lookout's connection must be closed first: the last one to close removes the log, and the
        // process may end right afterwards.
        drop(look.await);
        let end = match (self.conn.take(), self.look()) {
            (Some(conn), Ok(())) => connect::checkpoint_and_close(conn),
            (None, _) => Ok(()),
            // The log may belong to another file by now. Then this handle must not write it back, which
            // SQLite knows too.
            (Some(conn), Err(error)) => {
                tracing::warn!(%error, "closed without writing back the log");
                drop(conn);
                Ok(())
            }
        };
        closing.send_replace(Some(end));
    }

    /// Refuses what would leave no space for taking messages out: pushes, recorded ends, and settlements that
    /// bring successors or results.
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
            // One of the requests made it fail. Each is repeated alone, so that only that one fails.
            Err(failure) => {
                let mut failed = Some(failure).filter(|_| group.len() == 1);
                for job in group {
                    let outcome = self.alone(&job.work, failed.take());
                    self.answer(job, outcome.map_err(|failure| failure.error));
                }
            }
        }
    }

    /// Serves one request alone. If it takes messages out of a full file, it may exceed the limit a little,
    /// and gets the space of the log.
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

    /// Serves settlements of which one may make all fail: each that brings something alone, and then the
    /// claim.
    fn in_parts(&mut self, endings: &[Ending], claim: Option<&Claim>) -> Result<Answer, Failure> {
        let mut outcomes = Vec::with_capacity(endings.len());
        for part in endings.chunk_by(|a, b| !a.brings_any() && !b.brings_any()) {
            match self.alone(&Work::Settle { endings: part.to_vec(), claim: None }, None) {
                Ok(Answer::Settle(done, _)) => outcomes.extend(done),
                Ok(_) => return Err(no_answer()),
                // The others would wait just as long, and fail too.
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

    /// Serves a request that takes messages out of a full file, with the space that is reserved for that.
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

    /// Serves all requests in one transaction. Nobody is answered or woken before its commit.
    fn transact(&mut self, works: &[&Work]) -> Result<Vec<Answer>, Failure> {
        let (answers, hints) = self.attempt(works).inspect_err(|_| self.roll_back())?;
        // Checked after the commit: what is acknowledged was in the file that has this name, not in one that
        // had it before.
        self.look().map_err(|error| Failure { error, at_begin: true })?;
        hints.give(&self.waiters);
        Ok(answers)
    }

    /// Fails if the path no longer leads to the file that is being written.
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

    /// Rolls back. SQLite may have done so by itself. If that fails, the connection is dropped and a new one
    /// is opened later.
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

/// Collects the first request and those queued behind it. The callers just answered (`last` of them) are
/// likely to ask again at once: waiting a moment for them costs far less than another commit. A lone caller
/// does not wait.
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
