//! The one list of checks and tests, and its two entry points: `cargo xtask test` and `cargo xtask ci`.

use crate::conformance;
use crate::fresh::run_fresh;
use crate::package;
use crate::programs;
use crate::setup::run_setup;
use crate::steps::{Outcome, Run, Step, run_steps};
use crate::tidy::run_tidy;
use crate::workspace::Result;

/// Sets up, then checks and tests everything.
pub(crate) fn test() -> Result<()> {
    let mut steps = vec![Step { name: "setup", run: Run::Here(|| done(run_setup())) }];
    steps.extend(checks());
    run_steps(&steps)
}

/// Runs the checks and tests that find most mistakes within a short pause.
pub(crate) fn quick() -> Result<()> {
    let mut steps = first_checks();
    steps.push(Step { name: "tests", run: Run::Here(|| done(programs::run_quick())) });
    run_steps(&steps)
}

/// Checks and tests everything; with `full`, also the packages, the suites many times over, and the README on a new clone.
pub(crate) fn ci(full: bool) -> Result<()> {
    let mut steps = checks();
    if full {
        steps.extend(package::steps());
        // A workspace of its own, which no other step builds.
        steps.push(Step {
            name: "peers",
            run: Run::Cargo(&["check", "--locked", "--manifest-path", "bench/peers/Cargo.toml"]),
        });
        steps.push(Step { name: "twenty times", run: Run::Here(|| done(conformance::run_all(20))) });
        steps.push(Step { name: "fresh clone", run: Run::Here(|| done(run_fresh())) });
    } else {
        steps.extend(package::dependencies());
    }
    run_steps(&steps)
}

/// Returns the first checks, which take seconds if little has changed.
fn first_checks() -> Vec<Step> {
    vec![
        Step { name: "fmt", run: Run::Cargo(&["fmt", "--all", "--check"]) },
        Step { name: "tidy", run: Run::Here(|| done(run_tidy())) },
        Step {
            name: "clippy",
            run: Run::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        },
    ]
}

/// Returns all checks, the quick ones first, so that a mistake shows within seconds.
fn checks() -> Vec<Step> {
    let mut steps = first_checks();
    steps.extend([
        Step {
            name: "docs",
            run: Run::CargoWith(("RUSTDOCFLAGS", "-D warnings"), &["doc", "--workspace", "--no-deps"]),
        },
        Step { name: "tests", run: Run::Here(|| done(programs::run_all())) },
        Step { name: "doctests", run: Run::Cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]) },
        // Tested alone, because features of other members could hide one that it forgot to ask for.
        Step { name: "quickstart", run: Run::Cargo(&["test", "--package", "quickstart"]) },
    ]);
    steps
}

fn done(result: Result<()>) -> Result<Outcome> {
    result.map(|()| Outcome::Done)
}
