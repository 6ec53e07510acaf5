//! The API for adapters. Applications do not need it: they use [`Queue`](crate::Queue).
//!
//! An adapter implements [`QueueStorage`], [`PushQueueStorage`], [`PullQueueStorage`] and [`Storage`], and
//! declares its [`Capabilities`]. Where the backend supports it, the adapter also implements
//! [`InspectQueueStorage`], [`PauseQueueStorage`], [`AmendQueueStorage`], [`LedgerQueueStorage`] and
//! [`ControlStorage`]. A [`Backend`] makes it available by URL. The contract (`CONTRACT.md` in this crate)
//! says what an adapter must keep; the crate `anyqueue-conformance` proves it.

pub use crate::amend::AmendQueueStorage;
pub use crate::capabilities::{
    AgeClock, Capabilities, Coalesce, Dedup, DelayCapability, DeliveryCount, Durability, DurabilityLevel,
    InspectCapability, LeaseCapability, LeaseKind, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach,
    Rejoin, Requeue, SettleConfirm, Strictness,
};
pub use crate::control::ControlStorage;
pub use crate::counts::MessageCounts;
pub use crate::end_watches::{EndWatch, EndWatches};
pub use crate::envelope::{Decoded, Envelope};
pub use crate::errors::Errors;
#[doc(hidden)]
pub use crate::exec::Spawner;
pub use crate::forward::Forward;
pub use crate::inspect::{InspectQueueStorage, PauseQueueStorage};
pub use crate::ledger::{
    Cancelled, EndedCursor, EndedQuery, EndedTask, Forgotten, LedgerQueueStorage, LivePage, LiveTasks,
    SeriesCell, SeriesKey, TaskEnd, first_minute_kept, is_of_facts, minute_of,
};
pub use crate::lifecycle::QueueStorage;
pub use crate::namespace::Namespace;
pub use crate::queue::{IntoStorage, validate};
pub use crate::registry::{Backend, OpenFuture, StorageUrl, UrlOption};
pub use crate::status::DEATH_BYTES;
pub use crate::storage::{
    Action, Extension, Lease, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement,
    Storage, Successor, Token,
};
pub use crate::waiters::{Hint, Waiters, Waiting};

pub use async_trait::async_trait;
