//! The service's own rules that prevent something from being offered. Certificates cite them.

/// For both kinds of queues: what is not offered, in the conformance suite's words, and why.
const BOTH: &[(&str, &str)] = &[
    (
        "deduplication while the first message lives",
        "the service knows deduplication for five minutes, whatever became of the first",
    ),
    ("strict fencing", "a late deletion by an old receipt handle may succeed"),
    (
        "leases that any client can settle",
        "a move stores a copy, for which it takes the client that received the message",
    ),
    ("releases told from other deliveries", "each reception counts, whatever ended it"),
    ("all four counts", "what is postponed and what is held are counted as one: not visible"),
    ("a list of partitions", "a queue's name may hold no more than a hash of the partition's"),
    ("browsing", "a message can only be seen by receiving it"),
    ("deletion by id", "a message can only be deleted by whoever has received it"),
    ("purging", "PurgeQueue deletes what is held too, and takes up to a minute"),
    ("cancellation by id", "a message cannot be found by its id"),
    ("pausing", "a queue has no such state"),
    ("pushes that change what waits with their key", "what is stored cannot be changed"),
    ("amendment of what waits", "a queue cannot be reordered, and what waits cannot be found by its id"),
    ("messages that become urgent", "a queue cannot be reordered: what is stored stays as it was sent"),
    ("successors in one step", "no request both stores and deletes"),
    ("a ledger of the ends of tasks", "a queue keeps nothing of what is deleted"),
    ("a ledger in one step with the settlement", "a queue keeps nothing of what is deleted"),
    ("counts of ends by the minute", "a queue keeps nothing of what is deleted"),
    ("a control store", "a queue finds nothing by a key"),
    ("exchanges that overlap", "no request both settles and receives"),
    ("a controlled clock", "time is the server's: its clock cannot be turned"),
    ("stored bytes that others can write", "a body is text: bytes that are none cannot be put there"),
];

/// For standard queues.
const STANDARD: &[(&str, &str)] = &[
    ("push order", "a standard queue keeps no order; a FIFO queue does, within a group"),
    ("requeue to the front", "a standard queue keeps no order, so it has no front"),
    ("groups", "groups are a FIFO queue's"),
    ("groups claimed whole", "groups are a FIFO queue's"),
    ("deduplication", "deduplication is a FIFO queue's"),
    ("unique ids", "a standard queue takes a message as often as it is sent"),
];

/// For FIFO queues.
const FIFO: &[(&str, &str)] = &[
    ("priorities", "a queue has no priorities, and several queues keep no group together"),
    ("strict priorities", "a queue has no priorities, and several queues keep no group together"),
    ("push order", "a FIFO queue keeps the order within a group, not between groups"),
    ("requeue to the front", "a message that is shown again is the first of its group, not of the queue"),
    (
        "groups claimed whole",
        "a FIFO queue brings as many of a group as it likes, and nobody can ask for more of it while those are held",
    ),
    ("push delay", "a FIFO queue takes no delay of a single message"),
    (
        "headers replaced by postponement",
        "a message cannot be changed, and a copy would lose its place in its group",
    ),
    (
        "unique ids",
        "what is sent again within five minutes is dropped, also if the first was deleted, but answered as stored",
    ),
];

/// Returns the service's rule that keeps queues of this kind from offering what a case of the conformance
/// suite needs. `need` is in the suite's words. Returns `None` if it is offered, or if it is missing only
/// because one level was chosen.
pub fn server_rule(fifo: bool, need: &str) -> Option<&'static str> {
    let own = if fifo { FIFO } else { STANDARD };
    own.iter().chain(BOTH).find(|(what, _)| *what == need).map(|(_, rule)| *rule)
}
