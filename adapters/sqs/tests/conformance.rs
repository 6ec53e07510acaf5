//! The conformance suite over standard queues.

mod harness;

use std::process::ExitCode;

use anyqueue_conformance::least;

use harness::Kind;

const STANDARD: Kind = Kind { name: "sqs", fifo: false, least: least::CLOUD };

fn main() -> ExitCode {
    harness::main(&STANDARD)
}
