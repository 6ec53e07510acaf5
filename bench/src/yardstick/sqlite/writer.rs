//! The thread that owns the connection: group commit, and pulls that wait.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use anyqueue::{Bytes, MessageId};
use tokio::sync::{mpsc, oneshot};

use super::delivery::RawDelivery;
use super::table::Table;
use crate::client::Result;

/// How often a waiting pull looks for other processes' pushes.
const LOOK: Duration = Duration::from_millis(5);
/// How often it looks for ended leases.
const REAP: Duration = Duration::from_secs(1);
/// The maximum number of requests that share a transaction.
const GROUP: usize = 1024;
/// How long a transaction waits for requests of the callers that the last one answered. Without it, two
/// groups form that take turns, each waiting for the other's flush.
const GATHER: Duration = Duration::from_micros(300);

/// A removal, and what is stored with it.
pub(super) type Followed = ((i64, [u8; 16]), (MessageId, Bytes));

type Answer<T> = oneshot::Sender<Result<T>>;

pub(super) enum Request {
    Push(Vec<(MessageId, Bytes)>, Answer<()>),
    Settle(Vec<(i64, [u8; 16])>, Answer<()>),
    SettleThen(Vec<Followed>, Answer<()>),
    Pull { max: usize, until: Instant, answer: Answer<Vec<RawDelivery>> },
    Feed(Feeder),
    Count(Answer<u64>),
}

impl Request {
    /// Returns whether the answer promises that a loss of power undoes nothing.
    fn must_last(&self) -> bool {
        matches!(self, Self::Push(..) | Self::Settle(..) | Self::SettleThen(..))
    }
}

/// A puller's window. What its settlements free is claimed again in the same transaction.
pub(super) struct Feeder {
    window: usize,
    held: usize,
    to: mpsc::Sender<RawDelivery>,
}

impl Feeder {
    pub(super) fn new(window: usize, to: mpsc::Sender<RawDelivery>) -> Self {
        Self { window, held: 0, to }
    }

    fn wanted(&self) -> usize {
        let free = self.window - self.held;
        if free >= (self.window / 4).max(1) { free } else { 0 }
    }
}

struct Pull {
    max: usize,
    until: Instant,
    answer: Answer<Vec<RawDelivery>>,
}

/// What is answered once the transaction is committed.
enum Outcome {
    Done(Answer<()>, Result<()>),
    Pulled(Answer<Vec<RawDelivery>>, Vec<RawDelivery>),
    Fed(Vec<RawDelivery>),
}

pub(super) struct Writer<'c> {
    table: Table<'c>,
    requests: Receiver<Request>,
    waiting: VecDeque<Pull>,
    feeder: Option<Feeder>,
    data_version: i64,
    next_reap: Instant,
    last_group: usize,
}

impl<'c> Writer<'c> {
    pub(super) fn new(table: Table<'c>, requests: Receiver<Request>) -> Self {
        let next_reap = Instant::now() + REAP;
        Self {
            table,
            requests,
            waiting: VecDeque::new(),
            feeder: None,
            data_version: 0,
            next_reap,
            last_group: 0,
        }
    }

    /// Runs until every sender of requests is gone. A failed transaction drops its answers, so that its
    /// callers get an error.
    pub(super) fn run(mut self) {
        while let Ok(group) = self.gather() {
            let look = self.must_look();
            if !group.is_empty() || look {
                self.last_group = group.len();
                if self.transact(group).is_err() {
                    drop(self.table.rollback());
                    self.feeder = None;
                }
            }
            self.end_waits();
        }
    }

    /// Returns the next requests to serve together; none when it is time to look around.
    fn gather(&mut self) -> Result<Vec<Request>> {
        let mut group = Vec::new();
        match self.first() {
            Ok(request) => group.push(request),
            Err(RecvTimeoutError::Timeout) => return Ok(group),
            Err(RecvTimeoutError::Disconnected) => return Err("no more askers".into()),
        }
        let end = Instant::now() + GATHER;
        while group.len() < GROUP {
            match self.requests.try_recv() {
                Ok(request) => group.push(request),
                Err(TryRecvError::Empty) if group.len() < self.last_group && Instant::now() < end => {
                    std::thread::yield_now();
                }
                Err(_) => break,
            }
        }
        Ok(group)
    }

    fn first(&self) -> std::result::Result<Request, RecvTimeoutError> {
        if self.waiting.is_empty() && self.feeder.is_none() {
            self.requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            self.requests.recv_timeout(LOOK)
        }
    }

    /// Returns whether something may have become ready without a request.
    fn must_look(&mut self) -> bool {
        let waits = self.feeder.is_some() || !self.waiting.is_empty();
        waits && (self.changed_elsewhere() || Instant::now() >= self.next_reap)
    }

    fn changed_elsewhere(&mut self) -> bool {
        let version = self.table.data_version().unwrap_or_default();
        std::mem::replace(&mut self.data_version, version) != version
    }

    fn transact(&mut self, group: Vec<Request>) -> Result<()> {
        let mut outcomes = Vec::with_capacity(group.len() + 1);
        // A claim that a loss of power undoes is worth nothing anyway: its holder lost power too.
        self.table.begin(group.iter().any(Request::must_last))?;
        if Instant::now() >= self.next_reap {
            self.table.reap()?;
            self.next_reap = Instant::now() + REAP;
        }
        for request in group {
            self.serve(request, &mut outcomes)?;
        }
        self.feed(&mut outcomes)?;
        self.serve_waiting(&mut outcomes)?;
        self.table.commit()?;
        for outcome in outcomes {
            self.answer(outcome);
        }
        Ok(())
    }

    /// Serves pushes and settlements at once, and pulls after them, so that pulls see what the same group has
    /// pushed.
    fn serve(&mut self, request: Request, outcomes: &mut Vec<Outcome>) -> Result<()> {
        match request {
            Request::Push(rows, answer) => {
                self.table.insert(&rows)?;
                outcomes.push(Outcome::Done(answer, Ok(())));
            }
            Request::Settle(rows, answer) => {
                let settled = self.table.settle(&rows)?;
                if let Some(feeder) = &mut self.feeder {
                    feeder.held = feeder.held.saturating_sub(settled);
                }
                let all = if settled == rows.len() { Ok(()) } else { Err("a lease was lost".into()) };
                outcomes.push(Outcome::Done(answer, all));
            }
            Request::SettleThen(rows, answer) => {
                let mut settled = 0;
                for (held, follower) in &rows {
                    if self.table.settle(std::slice::from_ref(held))? == 1 {
                        self.table.insert(std::slice::from_ref(follower))?;
                        settled += 1;
                    }
                }
                let all = if settled == rows.len() { Ok(()) } else { Err("a lease was lost".into()) };
                outcomes.push(Outcome::Done(answer, all));
            }
            Request::Pull { max, until, answer } => self.waiting.push_back(Pull { max, until, answer }),
            Request::Feed(feeder) => self.feeder = Some(feeder),
            Request::Count(answer) => drop(answer.send(self.table.count())),
        }
        Ok(())
    }

    fn feed(&mut self, outcomes: &mut Vec<Outcome>) -> Result<()> {
        if self.feeder.as_ref().is_some_and(|feeder| feeder.to.is_closed()) {
            self.feeder = None;
        }
        let Some(feeder) = &mut self.feeder else { return Ok(()) };
        let wanted = feeder.wanted();
        if wanted > 0 {
            let claimed = self.table.claim(wanted)?;
            feeder.held += claimed.len();
            outcomes.push(Outcome::Fed(claimed));
        }
        Ok(())
    }

    fn serve_waiting(&mut self, outcomes: &mut Vec<Outcome>) -> Result<()> {
        while let Some(pull) = self.waiting.pop_front() {
            if pull.answer.is_closed() {
                continue;
            }
            let claimed = self.table.claim(pull.max)?;
            if claimed.is_empty() {
                self.waiting.push_front(pull);
                break;
            }
            outcomes.push(Outcome::Pulled(pull.answer, claimed));
        }
        Ok(())
    }

    fn answer(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done(answer, result) => drop(answer.send(result)),
            Outcome::Pulled(answer, deliveries) => drop(answer.send(Ok(deliveries))),
            // The channel is as wide as the window.
            Outcome::Fed(deliveries) => {
                for delivery in deliveries {
                    if let Some(feeder) = &self.feeder {
                        drop(feeder.to.try_send(delivery));
                    }
                }
            }
        }
    }

    /// Returns pulls that have waited long enough.
    fn end_waits(&mut self) {
        let now = Instant::now();
        let (ended, waiting) = self.waiting.drain(..).partition(|pull: &Pull| pull.until <= now);
        self.waiting = waiting;
        let ended: VecDeque<Pull> = ended;
        for pull in ended {
            drop(pull.answer.send(Ok(Vec::new())));
        }
    }
}
