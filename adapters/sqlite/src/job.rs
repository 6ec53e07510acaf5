//! The requests to the writer, and its answers.

use std::time::Duration;

use anyqueue::adapter::{Extension, Lease};
use anyqueue::control::{Change, Expect};
use anyqueue::{ExtendOutcome, MessageId, PartitionId, PushOutcome, Result, SettleOutcome};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, AdminAnswer};
use crate::ending::Ending;
use crate::new_message::NewMessage;
use crate::record::Stored;
use crate::token::token;

/// How many requests may be queued for the writer; more wait for a place in the queue.
pub(crate) const QUEUED: usize = 1024;

/// How many bytes one call may write over control entries in a full file: a small part of the space that is
/// kept for taking messages out.
const REPLACED_BYTES: usize = 64 << 10;

/// A request to the writer.
#[derive(Debug)]
pub(crate) enum Work {
    Push {
        partition: PartitionId,
        messages: Vec<NewMessage>,
    },
    /// Settles, then claims. Either may be absent.
    Settle {
        endings: Vec<Ending>,
        claim: Option<Claim>,
    },
    Extend(Vec<Extension>),
    Admin(Admin),
}

/// The writer's answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Push(Vec<PushOutcome>),
    Settle(Vec<Result<SettleOutcome>>, Result<Claimed>),
    Extend(Vec<Result<ExtendOutcome>>),
    Admin(AdminAnswer),
}

/// A request, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) reply: oneshot::Sender<Result<Answer>>,
}

impl Work {
    /// Whether the result must survive power loss, because someone who learns of it may survive that too.
    pub(crate) fn must_last(&self) -> bool {
        match self {
            Self::Settle { endings, .. } => !endings.is_empty(),
            // Expired ends are never reported, whether they are freed or not.
            Self::Extend(_) | Self::Admin(Admin::FreeEnds { .. }) => false,
            Self::Push { .. } | Self::Admin(_) => true,
        }
    }

    /// Whether it adds what must leave space for taking messages out: new messages, results, recorded ends,
    /// and control entries that are new or large.
    pub(crate) fn needs_room(&self) -> bool {
        match self {
            Self::Push { .. } | Self::Admin(Admin::Record { .. }) => true,
            Self::Admin(Admin::Control(changes)) => bring_more(changes),
            Self::Settle { endings, .. } => endings.iter().any(Ending::needs_room),
            Self::Extend(_) | Self::Admin(_) => false,
        }
    }

    /// Whether it has several parts (settlements or a claim) of which one may bring something that makes all
    /// of them fail.
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

/// Whether changes add more to the file than the heartbeats of a worker, which succeed even when it is full.
/// New entries do, and large ones.
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

/// What a pull asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) partition: PartitionId,
    pub(crate) max: usize,
    /// The most members of one group.
    pub(crate) group_members: usize,
    pub(crate) lease: Duration,
    /// Cancelled when the messages are not wanted any more.
    pub(crate) stop: CancellationToken,
}

/// The messages that were claimed. A pull may be dropped at any moment, so once this is
/// [bound](Self::return_to), dropping it releases messages that were not taken.
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

    /// Makes dropping this send a release to the writer. To be called after the commit.
    pub(crate) fn return_to(&mut self, jobs: mpsc::WeakSender<Job>, partition: PartitionId) {
        self.origin = Some((partition, jobs));
    }

    /// Returns the messages, and the secret of their tokens.
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
            // If there is no place in the queue, or the handle is closed, the messages return when their
            // leases end.
            let _ = jobs.try_send(Job { work: self.release(&partition), reply: oneshot::channel().0 });
        }
    }
}

/// A message that was claimed, as it is stored.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) stored: Stored,
    pub(crate) deliveries: i64,
}
