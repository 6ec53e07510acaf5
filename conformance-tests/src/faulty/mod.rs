//! Deliberately faulty backends, each with one fault: they prove that the suite finds it.
//!
//! Each wraps a right backend and changes one thing. A case names in [`Case::kills`](crate::Case::kills) the faults that it
//! must find; `tests/kills.rs` runs it against them.

mod harness;
mod hollow;
mod identity;
mod inspect;
mod pull;
mod push;
mod settle;
mod state;
mod storage;
mod wire;

pub use harness::{FaultyHarness, HollowHarness};
pub use hollow::Hollow;

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// One fault that a backend can have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// What the backend does wrong.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

faults! {
    // Push
    /// The eleventh message of a batch is acknowledged but not stored.
    LosesEleventh,
    /// A push is acknowledged a moment before it is stored.
    OkBeforeStored,
    /// Pushes are buffered in the client, and lost when it closes.
    BufferLostAtClose,
    /// The answers of a batch come in reverse order.
    AnswersReversed,
    /// Pushing a message whose id lives stores a second copy.
    RepeatStoresTwice,
    /// An id can never be used again.
    IdNeverFree,
    /// A message with the bytes of an earlier one is acknowledged and dropped.
    SameBodyDropped,
    /// A push whose future is dropped leaves half a message behind.
    DroppedPushTears,
    /// Payloads are cut at the first NUL.
    CutAtNul,
    /// Payloads are cut at 64 KiB.
    CutAt64KiB,
    /// White space around a payload is trimmed.
    Trimmed,
    /// Payloads are stored as text: what is no UTF-8 is replaced.
    LossyUtf8,
    /// Header names are stored in lower case.
    HeadersLowercased,
    /// Empty payloads are acknowledged and dropped.
    DropsEmpty,
    /// Every partition is the same one.
    PartitionIgnored,
    /// Partition names are made safe for the server, so that different ones become equal.
    NamesSanitised,
    /// Delays are halved.
    EarlyDelay,
    /// Delays are cut to whole seconds.
    DelayWholeSeconds,
    /// A delayed message at the head blocks what is ready behind it.
    DelayBlocks,
    /// The lowest priority goes first.
    PriorityInverted,
    /// Priorities are ignored.
    PriorityIgnored,
    /// Within a batch of equal priority the last goes first.
    TiesReversed,
    /// A delay of zero is taken for none at all: the message waits for ever.
    ZeroDelayForever,
    /// Delays above a year overflow to nothing.
    LongDelayOverflows,
    /// A group is unlocked when its head is delivered.
    GroupUnlocksAtDelivery,
    /// Deduplication first looks and then writes, with others in between.
    DedupRace,
    /// A deduplication key is never freed.
    DedupForever,
    /// Deduplication keys are shared by all partitions.
    DedupAcrossPartitions,
    /// Deduplication keys are ignored.
    DedupIgnored,
    /// A deduplication key is freed when its message is delivered.
    DedupUntilDelivery,
    /// A delayed message does not take its deduplication key.
    DedupForgetsDelayed,
    // Pull
    /// A pull answers up to `max + 1`.
    OneTooMany,
    /// A pull with `max` above ten answers nothing.
    LargeMaxEmpty,
    /// A pull answers one message, however many are ready.
    OneByOne,
    /// A pull waits until it is full.
    FillsUp,
    /// An empty pull ends in half its wait.
    WaitHalved,
    /// An empty pull waits once per priority level.
    WaitMultiplied,
    /// A pull that shall not wait waits all the same.
    ZeroWaits,
    /// A push during the wait is not seen before the next pull.
    SleepsThroughPush,
    /// One push wakes all waiters, and those that find nothing end their wait.
    WaitersGiveUp,
    /// Messages are removed when they are delivered.
    AutoAck,
    /// A pull takes one message more than it answers, and holds it back.
    Prefetches,
    /// A stopped pull goes on in the background, and what it fetches is lost.
    StoppedPullLoses,
    /// A stop does not end the wait.
    IgnoresStop,
    /// A message can be pulled by several at once.
    SharedDelivery,
    /// Leases never expire.
    LeaseNeverExpires,
    /// Leases are half as long as asked for.
    LeaseHalved,
    /// `lease_until` is counted twice too long.
    LeaseUntilTooLate,
    /// A matured message stands where it was pushed, not where it became ready.
    MaturedGoesFirst,
    /// Dead letters of a group are handed out one at a time.
    DeadKeepGroups,
    /// The delivery count is always 1.
    CountStuck,
    /// The age is always zero.
    AgeZero,
    // Settle
    /// A removal is acknowledged but not done.
    RemoveDoesNothing,
    /// One removal in thirty is acknowledged but not done.
    RemoveLostOneIn30,
    /// Of a batch of settlements only the first is done.
    OnlyFirstSettled,
    /// A failed message is dropped.
    RetryDrops,
    /// The third failure of a message drops it.
    ThirdRetryDrops,
    /// A released message waits for the end of its lease.
    ReleaseWaitsForLease,
    /// A failed message goes behind those never delivered.
    RetryToBack,
    /// A returned message loses its priority.
    RequeueLosesPriority,
    /// A message postponed without a delay is dropped.
    PostponeDrops,
    /// A postponed message is ready at once.
    PostponeAtOnce,
    /// The headers of a postponement are ignored.
    PostponeKeepsHeaders,
    /// A postponed message comes back ahead of others.
    PostponeToFront,
    /// A second settlement of the same lease answers `Settled`.
    SecondSettled,
    /// A settlement is accepted whatever its token.
    TokenIgnored,
    /// A lease that has ended is still good, as long as nobody else took the message.
    EndedStillGood,
    /// A settlement under a lost lease removes the new owner's message.
    StaleRemoves,
    /// A failure under a lost lease makes a copy.
    StaleRetryCopies,
    /// Returning one delivery returns all of its pull.
    LeasePerBatch,
    /// Messages moved to dead letters vanish.
    DeadVanish,
    /// A large message cannot be moved with new headers.
    LargeCannotDie,
    /// A move copies without deleting.
    MoveCopies,
    /// The delivery count goes on after a move.
    MoveKeepsCount,
    /// A move drops the headers it was given.
    MoveKeepsHeaders,
    /// `extend` answers `Extended` and does nothing.
    ExtendDoesNothing,
    /// `extend` never tells of a lost lease.
    ExtendNeverLost,
    /// A request for cancellation is not told to the holder.
    CancelNotTold,
    /// An exchange settles, but does not pull.
    ExchangeForgetsToPull,
    // Inspection, pause and life
    /// Counts are kept in the client.
    CountsLocal,
    /// Leased messages are counted as ready.
    LeasedCountedReady,
    /// Browsing leases what it shows.
    BrowseLeases,
    /// Pages of browsing overlap.
    BrowseRepeats,
    /// Browsing shows everything as ready.
    BrowseAllReady,
    /// What is not declared answers all the same.
    UndeclaredAnswered,
    /// Deletion by id does not ask in which partition the message is.
    DeleteAnywhere,
    /// Deletion takes leased messages too.
    DeleteTakesLeased,
    /// A purge takes leased messages too.
    PurgeTakesLeased,
    /// A purge ignores its limit.
    PurgeIgnoresLimit,
    /// A pause is known to its own client only.
    PauseLocal,
    /// A pause refuses pushes.
    PauseRefusesPush,
    /// A pull that waits when its partition is resumed goes on waiting.
    ResumeDoesNotWake,
    /// Declares fewer priority levels than it has.
    DeclaresLess,
    /// `close` leaves waiting pulls waiting.
    CloseDoesNotWake,
    /// A closed client goes on working.
    CloseDoesNothing,
    /// Closing again is an error.
    SecondCloseFails,
    /// Closing one client closes all.
    CloseIsShared,
    /// `check` remembers that all was well once.
    HealthRemembered,
    /// A restart of the server forgets what it had.
    RestartForgets,
    /// A client whose connection was lost never makes another.
    NeverReconnects,
    /// `check` does not ask the server.
    HealthIgnoresOutage,
    /// A push is acknowledged although the server did not answer.
    StoredWithoutAnswer,
    /// A settlement is confirmed although the server did not answer.
    SettledWithoutAnswer,
    /// An extension is confirmed although the server did not answer.
    ExtendedWithoutAnswer,
    /// `init` empties the storage.
    InitEmpties,
    /// Partitions are listed in no order.
    ListUnordered,
}
