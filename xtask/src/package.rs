//! `cargo xtask packages`: checks what a release promises of its packages, as far as a program can.

use crate::steps::{Outcome, Run, Step, run_steps};
use crate::workspace::{Result, cargo, in_clone, run, succeeds};

/// The name of the clone whose lock file has the lowest versions.
const LEAST: &str = "least";

/// Checks the packages alone.
pub(crate) fn run_packages() -> Result<()> {
    run_steps(&steps())
}

/// Checks every crate: with each feature alone, with the lowest versions of its dependencies, and from its
/// own package.
pub(crate) fn steps() -> Vec<Step> {
    let mut steps = dependencies();
    steps.extend([
        Step { name: "features", run: Run::Here(each_feature) },
        Step { name: "least versions", run: Run::Here(least_versions) },
        // From the commit, as a release is.
        Step { name: "packages", run: Run::Cargo(&["publish", "--workspace", "--dry-run"]) },
    ]);
    steps
}

/// Checks licences, sources and known vulnerabilities of the dependencies.
pub(crate) fn dependencies() -> Vec<Step> {
    vec![
        Step { name: "deny", run: Run::Here(|| deny_check(&["licenses", "bans", "sources"])) },
        Step { name: "advisories", run: Run::Here(advisory_check) },
    ]
}

fn advisory_check() -> Result<Outcome> {
    if has_deny() && !succeeds("cargo", &["deny", "fetch", "db"]) {
        return Ok(Outcome::Skipped("the database of advisories is out of reach"));
    }
    deny_check(&["advisories"])
}

fn has_deny() -> bool {
    succeeds("cargo", &["deny", "--version"])
}

fn deny_check(what: &[&str]) -> Result<Outcome> {
    if !has_deny() {
        return Ok(Outcome::Skipped("cargo-deny is not installed"));
    }
    run(cargo(&["deny", "check"]).args(what)).map(|()| Outcome::Done)
}

/// Checks each feature without the dependencies of tests, which could enable what a feature forgot to ask
/// for.
fn each_feature() -> Result<Outcome> {
    if !succeeds("cargo", &["hack", "--version"]) {
        return Ok(Outcome::Skipped("cargo-hack is not installed"));
    }
    let arguments = ["hack", "check", "--workspace", "--each-feature", "--no-dev-deps", "--ignore-private"];
    run(&mut cargo(&arguments)).map(|()| Outcome::Done)
}

/// Checks the workspace with the lowest versions that the manifests allow, in a clone of the commit.
fn least_versions() -> Result<Outcome> {
    in_clone(LEAST, |clone| {
        let mut update = cargo(&["update", "--quiet", "-Z", "direct-minimal-versions"]);
        // Only a nightly cargo has the option; the code is compiled with the compiler that people use.
        run(update.current_dir(clone).env("RUSTC_BOOTSTRAP", "1"))?;
        let mut check = cargo(&["check", "--workspace", "--all-features"]);
        run(check.current_dir(clone).env("CARGO_TARGET_DIR", clone.join("target")))
    })?;
    Ok(Outcome::Done)
}
