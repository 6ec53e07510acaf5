//! The conformance suite over standard queues.

mod harness;

use std::process::ExitCode;

use anyqueue_conformance::least;
use anyqueue_testkit::harness::ServerHarness;

use harness::Kind;

fn main() -> ExitCode {
    ServerHarness::main(Kind { name: "sqs", fifo: false, least: least::CLOUD })
}
