//! The numbered clauses of the contract, by title.

/// In their order; the first is clause 1.
const TITLES: [&str; 43] = [
    "Ok means stored, as durably as declared",
    "one result per message, in order; one bad item harms no other",
    "any batch size works",
    "an error says what repeating would do",
    "payload and headers come back byte for byte",
    "what is pushed before any consumer came is kept",
    "limits are declared and true",
    "between 1 and max deliveries, or none when the wait is over",
    "what is ready is returned at once",
    "an empty pull lasts no longer than its wait",
    "a push during the wait wakes the pull",
    "no hidden prefetch",
    "a dropped pull loses nothing",
    "while a lease is valid nobody else has the message",
    "highest priority first, then push order",
    "partitions do not leak into each other",
    "no starvation within a priority",
    "n pushes wake n waiters",
    "each settlement does what its status says",
    "one outcome per settlement, Settled only when it is",
    "a lost lease changes nothing for the new owner",
    "settling twice is harmless",
    "a settlement is carried through",
    "a dropped delivery comes back promptly",
    "invisible until the lease ends, available soon after",
    "extend moves the lease's end and tells of loss",
    "where the lease is the connection, its death returns the messages",
    "deliveries are counted",
    "time is the server's",
    "delays: never early, late by at most the slack, blocking nobody",
    "groups: one member at a time, in push order",
    "one message per deduplication key",
    "dead letters: once, intact, redrivable",
    "an expired message is not handed out",
    "counts, lists and browsing tell the truth and disturb nobody",
    "delete, purge and cancel by id",
    "a paused partition delivers nothing",
    "init is idempotent and safe from many processes",
    "check follows the server",
    "an instance recovers by itself; no call hangs",
    "close wakes waiters, is idempotent, and is final",
    "resources are bounded",
    "what is not supported is refused before anything is stored",
];

/// What the clause of this number says, in a few words. Empty for a number that is none.
pub fn clause_title(clause: u8) -> &'static str {
    usize::from(clause).checked_sub(1).and_then(|index| TITLES.get(index)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_numbered_from_one() {
        assert_eq!(clause_title(1), "Ok means stored, as durably as declared");
        assert!(clause_title(43).starts_with("what is not supported"));
        assert_eq!(clause_title(0), "");
        assert_eq!(clause_title(44), "");
    }
}
