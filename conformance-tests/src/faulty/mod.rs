//! Deliberately faulty backends, each with one fault: they prove that the suite finds it.
//!
//! Each wraps a right backend and changes one thing. A case names in [`Case::kills`](crate::Case::kills) the faults that it
//! must find; `tests/kills.rs` runs it against them.

mod harness;
mod hollow;
mod identity;
mod inspect;
mod processes;
mod pull;
mod push;
mod reader;
mod reader_clients;
mod reader_disguise;
mod reader_exchange;
mod reader_groups;
mod reader_inspect;
mod reader_keys;
mod reader_lease;
mod reader_names;
mod reader_pause;
mod reader_push;
mod reader_reborn;
mod reader_redelivery;
mod reader_settle;
mod reader_sharing;
mod reader_storage;
mod reader_wake;
mod settle;
mod spoilt;
mod state;
mod storage;
mod wire;

pub use harness::{FaultyHarness, HollowHarness};
pub use hollow::Hollow;
pub use spoilt::{Spoilt, main};

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
    /// A pull takes longer the more messages wait.
    SearchesBacklog,
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
    /// An exchange claims before one that was begun earlier.
    ExchangeOvertakes,
    /// A settlement under a lost lease is answered `Settled`, and not done.
    LateSettled,
    // Across processes
    /// What a client holds is known to that client only: others take it too.
    HeldLocally,
    /// The end of a lease is noticed by the client that holds it, and by nobody when that is gone.
    LeaseEndedByItsHolder,
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
    /// A message without an envelope is dropped.
    ForeignDropped,
    /// A message of the first release's form is taken for a foreign one.
    OldEnvelopeForeign,
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
    // Written from the contract alone
    /// Headers with an empty value are dropped.
    EmptyHeaderDropped,
    /// White space around the value of a header is trimmed.
    HeaderTrimmed,
    /// Of a batch of more than 128 the second chunk is stored before the first.
    SecondChunkFirst,
    /// A batch is stored in the order of its ids.
    BatchSortedById,
    /// What follows a duplicate in its batch is acknowledged and dropped.
    DuplicateEndsBatch,
    /// A duplicate is answered with its own id, not with that of the first.
    DuplicateNamesItself,
    /// Pushing a message again while it is held makes it ready.
    RepeatRevivesLeased,
    /// Pushing a delayed message again starts its delay anew.
    RepeatRestartsDelay,
    /// A deduplication key is not looked for in the batch that is pushed.
    TwinKeysInBatch,
    /// Deduplication keys are compared up to their 255th character.
    KeyCutAt255,
    /// Each client deduplicates what it has pushed itself.
    DedupPerClient,
    /// Deduplication keys are told apart by priority.
    DedupPerPriority,
    /// Groups that differ in case only are one.
    GroupCaseless,
    /// Members of a group that were pushed by different clients are of different groups.
    GroupPerClient,
    /// Members of a group that differ in priority are of different groups.
    GroupPerPriority,
    /// A message of a group has no priority.
    GroupForgetsPriority,
    /// A delayed message joins no group when it matures.
    DelayedForgetsGroup,
    /// A delayed message has no priority when it matures.
    DelayedForgetsPriority,
    /// The two highest priorities are one.
    TopLevelClamped,
    /// A failed message loses its deduplication key.
    KeyFreeAfterRetry,
    /// A postponed message loses its deduplication key.
    KeyFreeWhilePostponed,
    /// A message whose lease has ended loses its deduplication key.
    KeyFreeAtLeaseEnd,
    /// A dead letter keeps the deduplication key that it had alive.
    DeathKeepsKey,
    /// The deduplication keys of what was purged are never freed.
    PurgeKeepsKeys,
    /// Partition names are cut to 63 bytes.
    NameCutAt63,
    /// The dead letters of `x` are the live partition `x-dead`.
    DeadNameCollides,
    /// A moved message loses its priority.
    MoveForgetsPriority,
    /// A message moved to a live partition joins no group there.
    MoveForgetsGroup,
    /// A message moved to a live partition takes its deduplication key there.
    MoveTakesKey,
    /// A message that was pushed with a delay is delayed again when it is moved.
    MoveRepeatsDelay,
    /// A failed head goes to the end of its group.
    FailedHeadToEnd,
    /// A postponed head does not hold its group.
    PostponedHeadFreesGroup,
    /// What comes back for the second time goes behind what was never delivered.
    SecondReturnToBack,
    /// A group whose head died stays locked.
    DeathLocksGroup,
    /// A group whose waiting head was cancelled stays locked.
    CancelLocksGroup,
    /// A group whose waiting head was deleted stays locked.
    DeleteLocksGroup,
    /// A group whose waiting head was purged stays locked.
    PurgeLocksGroup,
    /// A delivery that was released stays in the count.
    ReleaseCounts,
    /// A delivery that was postponed stays in the count.
    PostponeCounts,
    /// A postponement cannot take all headers away.
    EmptyHeadersIgnored,
    /// The headers of a postponement are added to the old ones.
    PostponeMergesHeaders,
    /// The same lease twice in one batch is answered `Settled` twice.
    TwinSettled,
    /// Of a batch of settlements only those of the first one's partition are done.
    OnePartitionPerBatch,
    /// The answers to settlements of several partitions come by partition.
    AnswersByPartition,
    /// What follows a lost lease in a batch of settlements is not done.
    LostEndsBatch,
    /// A message moved to a live partition that nobody has pushed to vanishes.
    MoveToNewVanishes,
    /// Only the first delivery has headers.
    RedeliveryLosesHeaders,
    /// The headers of a postponement are shown once; then the old ones are back.
    NewHeadersOnce,
    /// The headers of a postponement are shown to the client that gave them only.
    NewHeadersLocal,
    /// A postponement starts the delivery count anew.
    PostponeResetsCount,
    /// A delivery whose lease ended is taken off the count.
    LeaseEndNotCounted,
    /// Each client counts the deliveries that it has seen.
    CountPerClient,
    /// The age counts from the last postponement.
    AgeAnewAfterPostpone,
    /// The age of a delayed message counts from its maturity.
    AgeFromMaturity,
    /// Extending one delivery extends all of its pull.
    ExtendTakesBatch,
    /// An extension cannot bring the end of a lease forward.
    ExtendNeverShortens,
    /// An extension counts from the end of the lease, not from now.
    ExtendAddsUp,
    /// The second extension of a lease is acknowledged and not done.
    SecondExtendIgnored,
    /// A client gets the lease of its first pull for all others.
    FirstLeaseForAll,
    /// A message whose lease has ended once does not come back a second time.
    SecondLeaseEndless,
    /// The lease of a dead letter never ends.
    DeadLeaseEndless,
    /// All deliveries to one client have the same token.
    TokenPerClient,
    /// What a pull answers after the 128th message is not leased.
    Row129Unleased,
    /// A request for cancellation is not told once the lease was extended.
    CancelLostByExtension,
    /// A request for cancellation is told by its own client only.
    CancelLocal,
    /// An exchange does not pull when a lease was lost.
    ExchangeStopsAtLost,
    /// An exchange pulls before it settles.
    ExchangePullsFirst,
    /// An exchange does not wait.
    ExchangeDoesNotWait,
    /// An exchange pulls from the partition that it settles in.
    ExchangeElsewhere,
    /// What waits behind others of its group is not counted.
    CountsForgetBehind,
    /// Dead letters that are held are not counted.
    DeadCountForgetsLeased,
    /// Browsing does not show what is postponed.
    BrowseHidesPostponed,
    /// Browsing shows the headers that a postponement has replaced.
    BrowseShowsOldHeaders,
    /// Browsing ends when the last message of the page before is gone.
    BrowseAfterGone,
    /// Partitions without a ready message are not listed.
    ListOnlyReady,
    /// The same id twice in one deletion is answered `Deleted` twice.
    TwinDeleted,
    /// Deletion does not find delayed messages.
    DeleteMissesDelayed,
    /// A request for cancellation leaves a delayed message waiting.
    CancelLeavesDelayed,
    /// A purge leaves delayed messages.
    PurgeLeavesDelayed,
    /// A purge takes the dead letters too.
    PurgeTakesDead,
    /// A pull that waits when its partition is paused goes on being served.
    PauseMissesWaiting,
    /// A pause stops the dead letters too.
    PauseTakesDead,
    /// In a paused partition an extension answers `Lost`.
    PauseEndsLeases,
    /// The settlement that empties a paused partition resumes it.
    PauseForgottenWhenEmpty,
    /// A pause ends when the client that asked for it closes.
    PauseDiesWithClient,
    /// `init` resumes paused partitions.
    InitResumes,
    /// `init` gives back what other clients hold.
    InitReleasesLeased,
    /// Closing one client gives back what all clients hold.
    CloseReleasesAll,
    /// What a closed client held never comes back.
    ClosedKeepsLeases,
    /// A delayed message is lost when its pusher closes before it matures.
    DelayedDieWithPusher,
    /// A postponed message is lost when its client closes before it matures.
    PostponedDieWithClient,
    /// A pull that waits does not hear of what comes back.
    ReleaseWakesNobody,
    /// A pull that waits does not hear of what is moved to its partition.
    MoveWakesNobody,
    /// A pull that waits does not hear that a removal has freed a group.
    FreedGroupWakesNobody,
    /// A pull that waits hears the pushes of its own client only.
    OthersUnheard,
    /// A batch wakes one of the pulls that wait, however many messages it has.
    BatchWakesOne,
    /// Two clients that wait for the same message both get it.
    WaitersShare,
    /// While a pull waits, its client extends nothing.
    WaitBlocksExtend,
    /// While a pull waits, its client pulls from no other partition.
    WaitBlocksOtherPull,
}
