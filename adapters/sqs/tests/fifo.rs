//! The conformance suite over FIFO queues.

mod harness;

use std::process::ExitCode;

use anyqueue_conformance::{Need, least};

use harness::Kind;

const FIFO: Kind = Kind {
    name: "sqs-fifo",
    fifo: true,
    least: least::CLOUD_FIFO,
    rules: &[
        (Need::PRIORITY, "a queue has no priorities, and several queues keep no group together"),
        (Need::STRICT_PRIORITY, "a queue has no priorities, and several queues keep no group together"),
        (Need::PUSH_ORDER, "a FIFO queue keeps the order within a group, not between groups"),
        (Need::REQUEUE_FRONT, "a message that is shown again is the first of its group, not of the queue"),
        (Need::PUSH_DELAY, "a FIFO queue takes no delay of a single message"),
        (Need::POSTPONE_HEADERS, "a message cannot be changed, and a copy would lose its place in its group"),
        (Need::DEDUP, "a duplicate is answered like what was stored, so nobody can be told"),
        (
            Need::UNIQUE_IDS,
            "what is sent again within five minutes is dropped, also if the first was deleted, but answered as stored",
        ),
    ],
};

fn main() -> ExitCode {
    harness::main(&FIFO)
}
