//! The conformance suite of anyqueue, which checks any queue backend against the contract.
//!
//! The author of an adapter writes one short test file: a [`Harness`] that opens independent clients of the
//! same storage, and [`suite!`], which generates a `main` with one test for each case. The test target needs
//! `harness = false`:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! ```no_run
//! use std::sync::Arc;
//! use anyqueue::adapter::Storage;
//! use anyqueue::Result;
//! use anyqueue_conformance::{Harness, async_trait};
//! use anyqueue_memory::MemoryQueue;
//! # use std::collections::HashMap;
//! # use std::sync::Mutex;
//!
//! #[derive(Default)]
//! struct Memory(Mutex<HashMap<String, MemoryQueue>>);
//!
//! #[async_trait]
//! impl Harness for Memory {
//!     fn name(&self) -> &str {
//!         "memory"
//!     }
//!     async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
//!         let mut spaces = self.0.lock().unwrap();
//!         Ok(Arc::new(spaces.entry(namespace.to_owned()).or_insert_with(MemoryQueue::new).client()))
//!     }
//! }
//!
//! anyqueue_conformance::suite!(Memory::default());
//! ```
//!
//! # Outcomes
//! A case passes, fails, is *not applicable* (the backend does not declare what the case needs) or is
//! *inconclusive* (it observed nothing, which never counts as a pass). A failure names the [`Clause`] of the
//! contract, what was expected, what was seen, and what happened to the messages concerned.
//!
//! # Settings
//! Environment variables configure the test program. Programs that call [`run`] have the same settings in
//! [`Options`].
//!
//! | variable | meaning |
//! |---|---|
//! | `ANYQUEUE_CONFORMANCE_SEED` | the seed that repeats a run's random choices |
//! | `ANYQUEUE_CONFORMANCE_TIER` | `quick` (the default), `thorough` for larger sizes and longer cases, `soak` for the cases that run for a set time |
//! | `ANYQUEUE_CONFORMANCE_MINUTES` | how many minutes a case of the soak tier runs; 10 by default |
//! | `ANYQUEUE_CONFORMANCE_SCHEDULING` | how many seconds late a busy machine may run what is due; 2 by default (see [`scheduling`]) |
//! | `ANYQUEUE_CONFORMANCE_CLAUSE` | only the cases that prove the clause of this number |
//! | `ANYQUEUE_CONFORMANCE_CAPABILITY` | only the cases that need a capability whose name contains this |
//! | `ANYQUEUE_CONFORMANCE_REPORT` | a folder: `<backend>.json`, `<backend>.md` (the certificate) and `<backend>.xml` (JUnit) are written there |

mod account;
mod case;
pub mod cases;
mod check;
mod child;
mod clause;
mod context;
mod fault;
mod fault_target;
mod harness;
mod history;
pub mod least;
mod libtest;
mod need;
mod options;
mod punctual;
mod random;
mod recorder;
mod report;
mod run;
mod verdict;

pub use anyqueue::adapter::async_trait;
pub use case::{Case, CaseFuture};
pub use check::{Violation, invariants};
pub use child::{Child, ChildEvent, Role, run_if_child};
pub use clause::Clause;
pub use context::{Client, Context, Timing, scheduling};
pub use fault::Fault;
pub use fault_target::{Disruption, FaultTarget};
pub use harness::{Harness, Opening, corrupted};
pub use history::Trace;
pub use libtest::main;
pub use need::{Need, Offer};
pub use options::{Layer, Options, Tier};
pub use report::{About, CaseReport, Certificate, Report, Tally, capability_table, markdown_matrix};
pub use run::{run, run_case};
pub use verdict::{CaseResult, Failure, Outcome, Stop};

/// Generates the `main` of a test target with `harness = false`: one test for each case, against this
/// harness.
#[macro_export]
macro_rules! suite {
    ($harness:expr) => {
        fn main() -> ::std::process::ExitCode {
            $crate::main(|| $harness)
        }
    };
}
