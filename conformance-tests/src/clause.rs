//! The clauses of the contract.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

macro_rules! clauses {
    ($($name:ident: $title:literal,)+) => {
        /// One clause of the contract; `core/CONTRACT.md` has its full text. Reports show its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Clause {
            $(#[doc = concat!($title, ".")] $name,)+
        }

        impl Clause {
            /// All clauses, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns what the clause says, in a few words.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)+
                }
            }
        }
    };
}

clauses! {
    Stored: "Ok means stored, as durably as declared",
    PushResults: "one result per message, in order; one bad item harms no other",
    BatchSizes: "any batch size works",
    PushErrors: "an error says what repeating would do",
    ContentIntact: "payload and headers come back byte for byte",
    KeptBeforeConsumers: "what is pushed before any consumer came is kept",
    Limits: "limits are declared and true",
    PullBounds: "between 1 and max deliveries, or none when the wait is over",
    ReadyAtOnce: "what is ready is returned at once",
    PullWait: "an empty pull lasts no longer than its wait",
    PushWakes: "a push during the wait wakes the pull",
    NoPrefetch: "no hidden prefetch",
    DroppedPull: "a dropped pull loses nothing",
    Exclusive: "while a lease is valid nobody else has the message",
    Order: "highest priority first, then push order",
    PartitionsApart: "partitions do not leak into each other",
    NoStarvation: "no starvation within a priority",
    AllWaitersWake: "n pushes wake n waiters",
    SettleActions: "each settlement does what its status says",
    SettleOutcomes: "one outcome per settlement, Settled only when it is",
    Fencing: "a lost lease changes nothing for the new owner",
    SettleTwice: "settling twice is harmless",
    SettleCarriedThrough: "a settlement is carried through",
    DroppedDelivery: "a dropped delivery comes back promptly",
    LeaseEnd: "invisible until the lease ends, available soon after",
    Extend: "extend moves the lease's end and tells of loss",
    ConnectionLease: "where the lease is the connection, its death returns the messages",
    DeliveryCount: "deliveries are counted",
    ServerTime: "time is the server's",
    Delays: "delays: never early, late by at most the slack, blocking nobody",
    Groups: "groups: one member at a time, in push order",
    Deduplication: "one message per deduplication key",
    DeadLetters: "dead letters: once, intact, redrivable",
    Expiry: "an expired message is not handed out",
    Inspection: "counts, lists and browsing tell the truth and disturb nobody",
    Deletion: "delete, purge and cancel by id",
    Pause: "a paused partition delivers nothing",
    Init: "init is idempotent and safe from many processes",
    Check: "check follows the server",
    Recovery: "an instance recovers by itself; no call hangs",
    Close: "close wakes waiters, is idempotent, and is final",
    Resources: "resources are bounded",
    Unsupported: "what is not supported is refused before anything is stored",
    Successors: "successors are stored with the end of their delivery, or not at all",
    Compaction: "a push changes what waits with its key, as it was asked to",
    Amendments: "what waits can be changed by id, and what is held never is",
    Urgency: "a message becomes urgent at its moment",
    WholeGroups: "a group is claimed whole where a pull asks for it",
    EndStored: "the end of a task is stored with its settlement, or not at all",
    EndedTold: "what has ended is listed, counted and found until its time is over",
    EndsMerge: "of the ends of a task that are recorded the greatest is left",
    EndsRemoved: "ends are deleted by id, freed when their time is over, and come with a cancellation",
    EntryKept: "an entry comes back as it was written, until it is changed, and stands apart from messages",
    EntryCompared: "a change is made if the entry is as it expects, and else returns what is there",
    EntriesListed: "entries are listed by prefix, in the order of their keys, each once",
    EntryLapses: "an entry lapses by the server's clock, to the millisecond",
    EndsCounted: "each end is counted once, in its minute",
}

impl Clause {
    /// Returns the clause's number in the contract; the first is 1.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Returns the clause with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|clause| clause.number() == number)
    }
}

/// Shows the clause's number.
impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// Parses the clause's number.
impl FromStr for Clause {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let clause = text.parse().ok().and_then(Self::from_number);
        clause.ok_or_else(|| format!("{text:?} is no clause: the contract has 1 to {}", Self::ALL.len()))
    }
}

/// Serialises as the clause's number.
impl Serialize for Clause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_numbered_from_one() {
        assert_eq!(Clause::from_number(1), Some(Clause::Stored));
        assert_eq!(Clause::from_number(43), Some(Clause::Unsupported));
        assert_eq!([Clause::from_number(0), Clause::from_number(58)], [None, None]);
        assert!(Clause::ALL.iter().zip(1..).all(|(clause, number)| clause.number() == number));
    }

    #[test]
    fn a_clause_is_written_and_read_as_its_number() {
        assert_eq!("20".parse(), Ok(Clause::SettleOutcomes));
        assert_eq!(Clause::SettleOutcomes.to_string(), "20");
        assert_eq!(serde_json::to_string(&Clause::SettleOutcomes).unwrap(), "20");
        assert!("0".parse::<Clause>().is_err() && "stored".parse::<Clause>().is_err());
    }
}
