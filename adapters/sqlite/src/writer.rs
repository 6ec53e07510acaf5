//! The one task that writes: it joins the requests that wait into one transaction (group commit).

use std::sync::Arc;

use anyqueue::{
    Action, Error, ErrorKind, ExtendOutcome, Extension, Lease, MessageId, PartitionId, PushOutcome, Result,
    SettleOutcome, Settlement,
};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, AdminAnswer};
use crate::claim::{Claim, Claimed};
use crate::config::{Config, Synchronous};
use crate::connect;
use crate::error::{is_conflict, own};
use crate::group::{self, Failure};
use crate::lookout;
use crate::push::NewMessage;
use crate::settle::token;
use crate::sql::{run, statement};
use crate::tx::{Hints, Parts};
use crate::wake::Wake;

/// Requests that may wait for the writer; more wait for a place.
pub(crate) const QUEUED: usize = 1024;
/// How often the processor is offered to others while requests gather: some microseconds in all.
const GATHER_TURNS: usize = 32;
/// Bytes of messages after which no more requests join a transaction.
const GROUP_BYTES: usize = 32 * 1024 * 1024;

/// What is asked of the writer.
#[derive(Debug)]
pub(crate) enum Work {
    Push {
        partition: PartitionId,
        messages: Vec<NewMessage>,
    },
    /// Settles, then claims, both of which may be absent.
    Settle {
        settlements: Vec<Settlement>,
        claim: Option<Claim>,
    },
    Extend(Vec<Extension>),
    Admin(Admin),
}

/// What it answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Push(Vec<PushOutcome>),
    Settle(Vec<Result<SettleOutcome>>, Claimed),
    Extend(Vec<Result<ExtendOutcome>>),
    Admin(AdminAnswer),
}

/// A request and where to answer it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) reply: oneshot::Sender<Result<Answer>>,
}

/// How closing ended; `None` while open.
pub(crate) type Closing = watch::Sender<Option<Result<()>>>;

/// The writer's state.
pub(crate) struct Writer {
    pub(crate) config: Config,
    pub(crate) conn: Option<SqliteConnection>,
    /// Whether commits of the connection are flushed to the disk now.
    pub(crate) flushes: bool,
    pub(crate) wake: Arc<Wake>,
    pub(crate) parts: Parts,
    /// Leases of messages whose puller went away before it got them.
    pub(crate) orphans: Vec<Settlement>,
}

impl Writer {
    /// Starts it, and the lookout, on a thread of their own: each statement hops to SQLite's thread and back, which a busy application's
    /// executor would make slow.
    pub(crate) fn start(
        self,
        jobs: mpsc::Receiver<Job>,
        closed: CancellationToken,
        closing: Closing,
    ) -> Result<()> {
        let failed = |error: std::io::Error| {
            own(ErrorKind::Unavailable, "no thread for the writer").with_source(error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let look = lookout::serve(Arc::clone(&self.wake), self.config.clone(), closed.clone());
        let serve = move || {
            runtime.spawn(look);
            runtime.block_on(self.serve(jobs, closed, closing));
        };
        std::thread::Builder::new().name("anyqueue-sqlite".to_owned()).spawn(serve).map_err(failed)?;
        Ok(())
    }

    /// Serves until the handle closes and everything queued is done.
    async fn serve(mut self, mut jobs: mpsc::Receiver<Job>, closed: CancellationToken, closing: Closing) {
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
            self.process(group).await;
            self.give_back().await;
        }
        let end = match self.conn.take() {
            Some(conn) => connect::checkpoint_and_close(conn).await,
            None => Ok(()),
        };
        closing.send_replace(Some(end));
    }

    async fn process(&mut self, mut group: Vec<Job>) {
        for job in &mut group {
            if let Work::Settle { claim, .. } = &mut job.work
                && job.reply.is_closed()
            {
                *claim = None; // nobody is there to take the messages
            }
        }
        let works: Vec<&Work> = group.iter().map(|job| &job.work).collect();
        let outcome = self.transact(&works).await;
        match outcome {
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
            Err(_) if group.len() > 1 => {
                for job in group {
                    let outcome = self.alone(&job.work, None).await;
                    self.answer(job, outcome);
                }
            }
            Err(failure) => {
                for job in group {
                    let outcome = self.alone(&job.work, Some(failure.error.clone())).await;
                    self.answer(job, outcome);
                }
            }
        }
    }

    /// One request by itself. What takes messages out of a full file may go a little beyond its limit.
    async fn alone(&mut self, work: &Work, failed: Option<Error>) -> Result<Answer> {
        let outcome = match failed {
            Some(error) => Err(error),
            None => self.transact_one(work).await,
        };
        match outcome {
            Err(error) if error.kind() == ErrorKind::Full && !matches!(work, Work::Push { .. }) => {
                self.limit_size(true).await?;
                let outcome = self.transact_one(work).await;
                self.limit_size(false).await?;
                outcome
            }
            outcome => outcome,
        }
    }

    async fn limit_size(&mut self, reserve: bool) -> Result<()> {
        match &mut self.conn {
            Some(conn) => connect::limit_size(conn, &self.config, reserve).await,
            None => Ok(()),
        }
    }

    async fn transact_one(&mut self, work: &Work) -> Result<Answer> {
        let mut answers = self.transact(&[work]).await.map_err(|failure| failure.error)?;
        answers.pop().ok_or_else(|| own(ErrorKind::Internal, "the writer gave no answer"))
    }

    /// Does everything in one transaction. Only after its commit is anybody answered or woken.
    async fn transact(&mut self, works: &[&Work]) -> Result<Vec<Answer>, Failure> {
        let outcome = self.try_transact(works).await;
        match outcome {
            Ok((answers, hints)) => {
                hints.give(&self.wake);
                Ok(answers)
            }
            Err(failure) => {
                self.roll_back(failure.at_begin).await;
                Err(failure)
            }
        }
    }

    /// SQLite may have rolled back by itself. Where it cannot be brought to a known state, begin afresh.
    async fn roll_back(&mut self, at_begin: bool) {
        self.parts.clear();
        let Some(conn) = &mut self.conn else { return };
        let rolled_back = run(conn, statement("ROLLBACK")).await.is_ok();
        if !rolled_back && (!at_begin || conn.ping().await.is_err()) {
            self.conn = None;
        }
    }

    /// Most pushes are new. Where one is not, everything is done again, with care.
    async fn try_transact(&mut self, works: &[&Work]) -> Result<(Vec<Answer>, Hints), Failure> {
        match self.attempt(works, false).await {
            Err(failure) if is_conflict(&failure.error) => {
                self.roll_back(false).await;
                self.attempt(works, true).await
            }
            outcome => outcome,
        }
    }

    /// Claims and extensions need not survive a loss of power: whoever held the messages does not survive it either.
    async fn flush_as_needed(&mut self, works: &[&Work]) -> Result<()> {
        let flush = self.config.synchronous == Synchronous::Full && works.iter().any(|work| work.must_last());
        if let Some(conn) = &mut self.conn
            && flush != self.flushes
        {
            connect::flush_commits(conn, flush).await?;
            self.flushes = flush;
        }
        Ok(())
    }

    async fn attempt(&mut self, works: &[&Work], careful: bool) -> Result<(Vec<Answer>, Hints), Failure> {
        if self.conn.is_none() {
            let opened = connect::writer(&self.config).await;
            self.conn = Some(opened.map_err(|error| Failure { error, at_begin: true })?);
            self.flushes = self.config.synchronous == Synchronous::Full;
        }
        self.flush_as_needed(works).await.map_err(|error| Failure { error, at_begin: true })?;
        match &mut self.conn {
            Some(conn) => group::run(conn, &mut self.parts, &self.config.clock, works, careful).await,
            None => {
                Err(Failure { error: own(ErrorKind::Internal, "there is no connection"), at_begin: true })
            }
        }
    }

    fn answer(&mut self, job: Job, outcome: Result<Answer>) {
        let Err(unheard) = job.reply.send(outcome) else { return };
        if let (Ok(Answer::Settle(_, claimed)), Work::Settle { claim: Some(claim), .. }) = (unheard, job.work)
        {
            self.orphans.extend(claimed.taken.iter().map(|taken| Settlement {
                lease: Lease {
                    partition: claim.partition.clone(),
                    id: MessageId::from_bytes([0; 16]), // the token says where the message is
                    token: token(taken.seq, claimed.secret),
                },
                action: Action::Release,
            }));
        }
    }

    /// Releases what nobody took. If that fails, it comes back at its lease's end.
    async fn give_back(&mut self) {
        if self.orphans.is_empty() {
            return;
        }
        let work = Work::Settle { settlements: std::mem::take(&mut self.orphans), claim: None };
        if let Err(failure) = self.transact(&[&work]).await {
            tracing::debug!(error = %failure.error, "messages of a dropped pull come back at their lease's end");
        }
    }
}

/// The first request and those that wait behind it. Those just answered (`last`) are about to ask again: a moment is spent
/// on letting them come along, which costs far less than another commit. A lone caller does not wait.
fn gather(first: Job, jobs: &mut mpsc::Receiver<Job>, last: usize) -> Vec<Job> {
    let mut bytes = first.work.bytes();
    let mut group = vec![first];
    let mut turns = 0;
    while group.len() < QUEUED && bytes < GROUP_BYTES {
        match jobs.try_recv() {
            Ok(job) => {
                bytes += job.work.bytes();
                group.push(job);
            }
            Err(_) if group.len() < last && turns < GATHER_TURNS => {
                turns += 1;
                std::thread::yield_now();
            }
            Err(_) => break,
        }
    }
    group
}

impl Work {
    /// Whether somebody is told that it was done who may still be there after a loss of power.
    fn must_last(&self) -> bool {
        match self {
            Self::Settle { settlements, .. } => !settlements.is_empty(),
            Self::Extend(_) => false,
            Self::Push { .. } | Self::Admin(_) => true,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Push { messages, .. } => messages.iter().map(NewMessage::body_bytes).sum(),
            _ => 0,
        }
    }
}
