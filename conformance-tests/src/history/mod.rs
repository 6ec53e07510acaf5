//! What a case did and saw, in order: the evidence for every verdict.
//!
//! While a case runs, the [`History`] keeps the calls as they were made. For judgement, and for files, it becomes a
//! [`Trace`]: plain data.

mod describe;
mod export;
mod trace;
pub(crate) mod units;

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Extension, RawDelivery, Settlement};
use anyqueue::{
    Amend, AmendOutcome, Browsed, CancelOutcome, Clock, Counts, DeleteOutcome, ExtendOutcome, MessageData,
    MessageId, PartitionId, PushOutcome, Result, SettleOutcome, TaskOptions, When,
};

pub(crate) use export::Exported;
pub use trace::Trace;
pub(crate) use trace::{
    Action as Act, Amendment, Answer, Cancellation, Change, Content, Deletion, Delivered, Event as Call,
    Extension as Extending, OnDuplicate, Op as Asked, Push, Pushed, Settled, Settlement as Settling, State,
    Successor,
};

/// The smallest difference between two moments of a history.
const TICK: Duration = Duration::from_micros(1);

/// At most this many lines go into a failure; a longer history loses its beginning.
const MAX_LINES: usize = 60;

/// At most this many messages are named in a row.
const MAX_LABELS: usize = 40;

/// One call. `returned` stays empty while the call is under way, and forever if it was dropped.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) client: Arc<str>,
    pub(crate) invoked: Instant,
    pub(crate) returned: Option<Instant>,
    pub(crate) op: Op,
    /// How long the call was asked to wait.
    wait: Duration,
    /// Gone when the call was dropped.
    caller: Weak<()>,
}

impl Event {
    fn is_under_way(&self) -> bool {
        self.returned.is_none() && self.caller.strong_count() > 0
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Push {
        partition: PartitionId,
        ids: Vec<MessageId>,
        outcomes: Vec<Result<PushOutcome>>,
    },
    Pull {
        partition: PartitionId,
        max: usize,
        wait: Duration,
        lease: Duration,
        /// How many members of one group it may return.
        group_members: usize,
        /// Somebody asked the pull to finish early.
        stopped: bool,
        outcome: Result<Vec<RawDelivery>>,
    },
    Settle {
        settlements: Vec<Settlement>,
        outcomes: Vec<Result<SettleOutcome>>,
    },
    Extend {
        extensions: Vec<Extension>,
        outcomes: Vec<Result<ExtendOutcome>>,
    },
    Delete {
        partition: PartitionId,
        ids: Vec<MessageId>,
        outcomes: Vec<Result<DeleteOutcome>>,
    },
    Cancel {
        partition: PartitionId,
        ids: Vec<MessageId>,
        outcomes: Vec<Result<CancelOutcome>>,
    },
    Amend {
        partition: PartitionId,
        ids: Vec<MessageId>,
        change: Amend,
        outcomes: Vec<Result<AmendOutcome>>,
    },
    Purge {
        partition: PartitionId,
        limit: usize,
        outcome: Result<usize>,
    },
    Counts {
        partition: PartitionId,
        outcome: Result<Counts>,
    },
    Browse {
        partition: PartitionId,
        from_start: bool,
        limit: usize,
        outcome: Result<Vec<Browsed>>,
    },
    Pause {
        partition: PartitionId,
        paused: bool,
        outcome: Result<()>,
    },
    Close,
    /// The client was dropped without being closed.
    Crash,
    /// A child process reported that it holds a message, under this lease.
    ChildTook {
        id: MessageId,
        lease: Duration,
    },
    /// A child process reported that its removal of a message was confirmed.
    ChildRemoved {
        id: MessageId,
    },
    /// Everything was pulled and removed until nothing was left.
    Drained,
    Note(String),
}

/// A call under way. If the ticket is dropped without an [`end`](History::end), the call was dropped, which
/// its event learns from what both share.
#[derive(Debug)]
pub(crate) struct Ticket(usize, Arc<()>);

/// The events of one case, the messages it created, and how much it observed.
#[derive(Debug)]
pub(crate) struct History {
    clock: Clock,
    start: Instant,
    inner: Mutex<Inner>,
    observations: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    events: Vec<Event>,
    numbers: HashMap<MessageId, usize>,
    /// Messages as they were first pushed.
    messages: HashMap<MessageId, MessageData>,
    /// Messages that were pushed more than once.
    sent_twice: HashSet<MessageId>,
    last: Option<Instant>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self::on(Clock::system())
    }

    /// Creates a history whose moments are read from this clock.
    pub(crate) fn on(clock: Clock) -> Self {
        let start = clock.now();
        Self { clock, start, inner: Mutex::default(), observations: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the beginning of a call. `op` has a placeholder for the answer until [`end`](Self::end).
    pub(crate) fn begin(&self, client: &Arc<str>, op: Op) -> Ticket {
        let wait = if let Op::Pull { wait, .. } = &op { *wait } else { Duration::ZERO };
        self.begin_waiting(client, op, wait)
    }

    /// Does the same for a call that may wait, whatever its kind.
    pub(crate) fn begin_waiting(&self, client: &Arc<str>, op: Op, wait: Duration) -> Ticket {
        let mut inner = self.lock();
        let (invoked, caller) = (inner.stamp(&self.clock), Arc::new(()));
        let (client, gone) = (client.clone(), Arc::downgrade(&caller));
        inner.events.push(Event { client, invoked, returned: None, op, wait, caller: gone });
        Ticket(inner.events.len() - 1, caller)
    }

    /// Records the end of a call, and `seen` observations.
    pub(crate) fn end(&self, ticket: Ticket, seen: usize, answer: impl FnOnce(&mut Op)) {
        self.observed(seen);
        let Ticket(at, caller) = ticket;
        let mut inner = self.lock();
        let returned = inner.stamp(&self.clock);
        if let Some(event) = inner.events.get_mut(at) {
            event.returned = Some(returned);
            answer(&mut event.op);
        }
        drop(caller);
    }

    /// Records something that is not a call.
    pub(crate) fn note(&self, client: &Arc<str>, text: impl Into<String>) {
        let ticket = self.begin(client, Op::Note(text.into()));
        self.end(ticket, 0, |_| ());
    }

    /// Returns how long the history has been going on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.start)
    }

    /// Counts observations; a case without any is inconclusive.
    pub(crate) fn observed(&self, count: usize) {
        self.observations.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn observations(&self) -> usize {
        self.observations.load(Ordering::Relaxed)
    }

    /// Gives a message its number.
    pub(crate) fn number(&self, id: MessageId) {
        self.lock().number(id);
    }

    /// Remembers a message as it is pushed for the first time.
    pub(crate) fn know(&self, message: &MessageData) {
        let mut inner = self.lock();
        inner.number(message.id());
        match inner.messages.entry(message.id()) {
            Entry::Vacant(entry) => drop(entry.insert(message.clone())),
            Entry::Occupied(_) => drop(inner.sent_twice.insert(message.id())),
        }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Returns a label such as `#3`, or the id of a message that the case did not create.
    pub(crate) fn label(&self, id: MessageId) -> String {
        self.lock().label(id)
    }

    /// Returns labels such as `#3 #4 #5`.
    pub(crate) fn labels(&self, ids: &[MessageId]) -> String {
        if ids.is_empty() {
            return "nothing".to_owned();
        }
        let inner = self.lock();
        let mut labels: Vec<_> = ids.iter().take(MAX_LABELS).map(|id| inner.label(*id)).collect();
        labels.extend(
            ids.len().checked_sub(MAX_LABELS).filter(|more| *more > 0).map(|more| format!("and {more} more")),
        );
        labels.join(" ")
    }

    /// Returns the last call that has not ended, for a case that hangs.
    pub(crate) fn under_way(&self) -> Option<String> {
        let inner = self.lock();
        let event = inner.events.iter().rev().find(|event| event.is_under_way())?;
        Some(inner.told(event))
    }

    /// Returns a call that has taken this much longer than it was asked to wait.
    pub(crate) fn overdue(&self, beyond: Duration) -> Option<String> {
        let (inner, now) = (self.lock(), self.clock.now());
        let late = |event: &&Event| {
            event.is_under_way()
                && now.saturating_duration_since(event.invoked) > event.wait.saturating_add(beyond)
        };
        inner.events.iter().find(late).map(|event| inner.told(event))
    }

    /// Returns whether this client waits for the answer to a pull.
    pub(crate) fn is_pulling(&self, client: &str) -> bool {
        let pulls = |event: &Event| matches!(event.op, Op::Pull { .. }) && *event.client == *client;
        self.lock().events.iter().any(|event| pulls(event) && event.is_under_way())
    }

    /// Returns how long ago a call last began or ended.
    pub(crate) fn quiet_for(&self) -> Duration {
        let last = self.lock().last.unwrap_or(self.start);
        self.clock.now().saturating_duration_since(last)
    }

    /// Returns the events that concern these messages (all events if none are named), as lines for people.
    pub(crate) fn lines(&self, about: &[MessageId]) -> Vec<String> {
        let inner = self.lock();
        let mut lines: Vec<String> = inner
            .events
            .iter()
            .filter(|event| about.is_empty() || event.op.concerns(about))
            .map(|event| {
                let at = event.invoked.saturating_duration_since(self.start);
                let took = event.returned.map_or_else(
                    || "…".to_owned(),
                    |returned| format!("{:.1?}", returned.saturating_duration_since(event.invoked)),
                );
                format!(
                    "{:7.3}s (+{took}) {} {}",
                    at.as_secs_f64(),
                    event.client,
                    inner.describe(&event.op, about)
                )
            })
            .collect();
        if let Some(cut) = lines.len().checked_sub(MAX_LINES).filter(|cut| *cut > 0) {
            lines.drain(..cut);
            lines.insert(0, format!("({cut} earlier events left out)"));
        }
        lines
    }
}

impl Inner {
    /// Returns the current time, but later than any moment before: so the order of moments is the order of
    /// events, even while the clock stands still.
    fn stamp(&mut self, clock: &Clock) -> Instant {
        let now = self.last.map_or_else(|| clock.now(), |last| clock.now().max(last + TICK));
        self.last = Some(now);
        now
    }

    fn told(&self, event: &Event) -> String {
        format!("{} {}", event.client, self.describe(&event.op, &[]))
    }

    fn label(&self, id: MessageId) -> String {
        self.numbers.get(&id).map_or_else(|| id.to_string(), |number| format!("#{number}"))
    }

    /// Returns what decides where the message stands: `#3 (priority 2, delay 50ms, group "g", key "k")`.
    fn pushed(&self, id: &MessageId) -> String {
        let mut text = self.label(*id);
        let Some(message) = self.messages.get(id) else { return text };
        let TaskOptions { priority, delay, group, dedup_key, .. } = message.options();
        let delay = match delay {
            Some(When::In(delay)) => Some(format!("delay {delay:?}")),
            Some(When::At(at)) => Some(format!("not before {at:?}")),
            None => None,
        };
        let options = [
            (*priority > 0).then(|| format!("priority {priority}")),
            delay,
            group.as_ref().map(|group| format!("group {group:?}")),
            dedup_key.as_ref().map(|key| format!("key {key:?}")),
        ];
        let told: Vec<String> = options.into_iter().flatten().collect();
        if !told.is_empty() {
            let _ = write!(text, " ({})", told.join(", "));
        }
        text
    }

    fn number(&mut self, id: MessageId) {
        let next = self.numbers.len();
        self.numbers.entry(id).or_insert(next);
    }
}

impl Op {
    fn concerns(&self, about: &[MessageId]) -> bool {
        match self {
            Self::Push { ids, .. }
            | Self::Delete { ids, .. }
            | Self::Cancel { ids, .. }
            | Self::Amend { ids, .. } => ids.iter().any(|id| about.contains(id)),
            Self::Pull { outcome, .. } => {
                outcome.iter().flatten().any(|delivery| about.contains(&delivery.lease.id))
            }
            Self::Settle { settlements, .. } => settlements.iter().any(|s| {
                about.contains(&s.lease.id) || s.then.iter().any(|it| about.contains(&it.message.id()))
            }),
            Self::Extend { extensions, .. } => extensions.iter().any(|e| about.contains(&e.lease.id)),
            Self::ChildTook { id, .. } | Self::ChildRemoved { id } => about.contains(id),
            Self::Browse { outcome, .. } => {
                outcome.iter().flatten().any(|shown| about.contains(&shown.message.id()))
            }
            Self::Purge { .. }
            | Self::Counts { .. }
            | Self::Pause { .. }
            | Self::Close
            | Self::Crash
            | Self::Drained
            | Self::Note(_) => true,
        }
    }
}
