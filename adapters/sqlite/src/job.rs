//! What is asked of the writer, and what it answers.

use std::time::Duration;

use anyqueue::adapter::{Extension, Lease};
use anyqueue::control::{Change, Expect};
use anyqueue::{ExtendOutcome, MessageId, PartitionId, PushOutcome, Result, SettleOutcome};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, AdminAnswer};
use crate::ending::Ending;
use crate::new_message::NewMessage;
use crate::stored::Stored;
use crate::token::token;

/// Requests that may wait for the writer; more wait for a place.
pub(crate) const QUEUED: usize = 1024;

/// What one call may write over control entries in a full file: a small part of what is kept free for taking messages out.
const REPLACED_BYTES: usize = 64 << 10;

/// What is asked of the writer.
#[derive(Debug)]
pub(crate) enum Work {
    Push {
        partition: PartitionId,
        messages: Vec<NewMessage>,
    },
    /// Settles, then claims, both of which may be absent.
    Settle {
        endings: Vec<Ending>,
        claim: Option<Claim>,
    },
    Extend(Vec<Extension>),
    Admin(Admin),
}

/// What it answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Push(Vec<PushOutcome>),
    Settle(Vec<Result<SettleOutcome>>, Result<Claimed>),
    Extend(Vec<Result<ExtendOutcome>>),
    Admin(AdminAnswer),
}

/// A request and where to answer it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) reply: oneshot::Sender<Result<Answer>>,
}

impl Work {
    /// Whether somebody is told that it was done who may still be there after a loss of power.
    pub(crate) fn must_last(&self) -> bool {
        match self {
            Self::Settle { endings, .. } => !endings.is_empty(),
            // What has lapsed is told to nobody, freed or not.
            Self::Extend(_) | Self::Admin(Admin::FreeEnds { .. }) => false,
            Self::Push { .. } | Self::Admin(_) => true,
        }
    }

    /// Whether it puts into the file what has to leave room for taking messages out: new messages, results, ends of their own, control entries that are new or large.
    pub(crate) fn needs_room(&self) -> bool {
        match self {
            Self::Push { .. } | Self::Admin(Admin::Record { .. }) => true,
            Self::Admin(Admin::Control(changes)) => bring_more(changes),
            Self::Settle { endings, .. } => endings.iter().any(Ending::needs_room),
            Self::Extend(_) | Self::Admin(_) => false,
        }
    }

    /// Whether it settles several deliveries, or claims some too, while what one of them brings may spoil it for all.
    pub(crate) fn can_be_parted(&self) -> bool {
        let Self::Settle { endings, claim } = self else { return false };
        endings.iter().any(Ending::brings_any) && (endings.len() > 1 || claim.is_some())
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Settle { endings, .. } => endings.iter().map(Ending::bytes).sum(),
            Self::Push { messages, .. } => messages.iter().map(NewMessage::body_bytes).sum(),
            Self::Admin(Admin::Control(changes)) => changes.iter().map(change_bytes).sum(),
            _ => 0,
        }
    }
}

/// Whether changes put more into the file than the beats of a worker do, which go through also when it is full: new entries, or large ones.
fn bring_more(changes: &[Change]) -> bool {
    let replaces = |change: &Change| match change {
        Change::Put { expect, .. } => matches!(expect, Expect::Version(_)),
        _ => true,
    };
    !changes.iter().all(replaces) || changes.iter().map(change_bytes).sum::<usize>() > REPLACED_BYTES
}

fn change_bytes(change: &Change) -> usize {
    if let Change::Put { value, .. } = change { value.len() } else { 0 }
}

/// What one pull asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) partition: PartitionId,
    pub(crate) max: usize,
    /// Of one group at once.
    pub(crate) group_members: usize,
    pub(crate) lease: Duration,
    /// Fires when nobody wants it any more.
    pub(crate) stop: CancellationToken,
}

/// What it got. Once [bound](Self::return_to), what nobody takes is released, for a pull may be dropped at any moment.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    secret: u128,
    taken: Vec<Taken>,
    origin: Option<(PartitionId, mpsc::WeakSender<Job>)>,
}

impl Claimed {
    pub(crate) fn new(secret: u128, taken: Vec<Taken>) -> Self {
        Self { secret, taken, origin: None }
    }

    /// From now on, after the commit, releases to the writer what is not taken.
    pub(crate) fn return_to(&mut self, jobs: mpsc::WeakSender<Job>, partition: PartitionId) {
        self.origin = Some((partition, jobs));
    }

    /// The messages and the secret of their tokens.
    pub(crate) fn take(mut self) -> (Vec<Taken>, u128) {
        (std::mem::take(&mut self.taken), self.secret)
    }

    fn release(&self, partition: &PartitionId) -> Work {
        let release = |taken: &Taken| {
            let lease = Lease {
                partition: partition.clone(),
                id: MessageId::from_bytes([0; 16]), // the token says where the message is
                token: token(taken.stored.seq, self.secret),
            };
            Ending::release(lease)
        };
        Work::Settle { endings: self.taken.iter().map(release).collect(), claim: None }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let Some((partition, jobs)) = self.origin.take().filter(|_| !self.taken.is_empty()) else { return };
        if let Some(jobs) = jobs.upgrade() {
            // Where there is no room, or the handle is closed, it comes back at its lease's end.
            let _ = jobs.try_send(Job { work: self.release(&partition), reply: oneshot::channel().0 });
        }
    }
}

/// One message as it is stored.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) stored: Stored,
    pub(crate) deliveries: i64,
}
