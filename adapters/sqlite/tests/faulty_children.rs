//! The cases with child processes, against clients with a fault: that they can fail is shown on a backend which processes share.

mod harness;

fn main() -> std::process::ExitCode {
    anyqueue_faults::main(harness::Sqlite::new)
}
