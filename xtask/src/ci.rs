//! The one list of checks and tests, and its two entry points: `cargo xtask test` and `cargo xtask ci`.

use crate::conformance;
use crate::fresh::run_fresh;
use crate::setup::run_setup;
use crate::steps::{Outcome, Run, Step, run_steps};
use crate::tidy::run_tidy;
use crate::workspace::{self, Result, cargo, succeeds};

/// Sets up, then checks and tests everything.
pub(crate) fn test() -> Result<()> {
    let mut steps = vec![Step { name: "setup", run: Run::Here(|| done(run_setup())) }];
    steps.extend(checks());
    run_steps(&steps)
}

/// Checks and tests everything; with `full`, the suites many times over, and on a new clone.
pub(crate) fn ci(full: bool) -> Result<()> {
    let mut steps = checks();
    steps.push(Step { name: "deny", run: Run::Here(deny) });
    if full {
        steps.push(Step { name: "twenty times", run: Run::Here(|| done(conformance::run_all(20))) });
        steps.push(Step { name: "fresh clone", run: Run::Here(|| done(run_fresh())) });
    }
    run_steps(&steps)
}

/// Quick ones first, so that a slip is told in seconds.
fn checks() -> Vec<Step> {
    vec![
        Step { name: "fmt", run: Run::Cargo(&["fmt", "--all", "--check"]) },
        Step { name: "tidy", run: Run::Here(|| done(run_tidy())) },
        Step {
            name: "clippy",
            run: Run::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        },
        Step {
            name: "docs",
            run: Run::CargoWith(("RUSTDOCFLAGS", "-D warnings"), &["doc", "--workspace", "--no-deps"]),
        },
        Step { name: "tests", run: Run::Cargo(&["test", "--workspace", "--all-targets", "--no-fail-fast"]) },
        Step { name: "doctests", run: Run::Cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]) },
        // Alone, because other members' features could hide one that it forgot to ask for.
        Step { name: "quickstart", run: Run::Cargo(&["test", "--package", "quickstart"]) },
    ]
}

fn done(result: Result<()>) -> Result<Outcome> {
    result.map(|()| Outcome::Done)
}

fn deny() -> Result<Outcome> {
    if !succeeds("cargo", &["deny", "--version"]) {
        return Ok(Outcome::NotRun("cargo-deny is not installed"));
    }
    done(workspace::run(&mut cargo(&["deny", "check"])))
}
