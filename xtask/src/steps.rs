//! Runs steps one after another, with a line before and after each and a table of times at the end.

use std::time::{Duration, Instant};

use crate::workspace::{self, Result, cargo};

/// One step.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: Run,
}

/// What a step does.
pub(crate) enum Run {
    /// Cargo with these arguments.
    Cargo(&'static [&'static str]),
    /// Cargo with this environment variable and these arguments.
    CargoWith((&'static str, &'static str), &'static [&'static str]),
    /// A function of this program.
    Here(fn() -> Result<Outcome>),
}

/// How a step that did not fail ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did its work.
    Done,
    /// It was skipped, for this reason. This is shown clearly, because it is not a pass.
    Skipped(&'static str),
}

/// Runs the steps up to the first one that fails.
pub(crate) fn run_steps(steps: &[Step]) -> Result<()> {
    let begin = Instant::now();
    let mut rows = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        println!("== [{}/{}] {}", index + 1, steps.len(), step.title());
        let begin = Instant::now();
        let result = step.run();
        let row = Row { name: step.name, took: begin.elapsed(), result };
        println!("== {row}");
        let failed = row.result.is_err();
        rows.push(row);
        if failed {
            break;
        }
    }
    summary(&rows, steps.len(), begin.elapsed())
}

impl Step {
    fn title(&self) -> String {
        match self.run {
            Run::Cargo(arguments) => format!("{}: cargo {}", self.name, arguments.join(" ")),
            Run::CargoWith((key, value), arguments) => {
                format!("{}: {key}={value:?} cargo {}", self.name, arguments.join(" "))
            }
            Run::Here(_) => self.name.to_owned(),
        }
    }

    fn run(&self) -> Result<Outcome> {
        match self.run {
            Run::Cargo(arguments) => workspace::run(&mut cargo(arguments)).map(|()| Outcome::Done),
            Run::CargoWith((key, value), arguments) => {
                workspace::run(cargo(arguments).env(key, value)).map(|()| Outcome::Done)
            }
            Run::Here(function) => function(),
        }
    }
}

/// One line of the table of times.
struct Row {
    name: &'static str,
    took: Duration,
    result: Result<Outcome>,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let outcome = match &self.result {
            Ok(Outcome::Done) => "ok".to_owned(),
            Ok(Outcome::Skipped(reason)) => format!("skipped: {reason}"),
            Err(_) => "FAILED".to_owned(),
        };
        write!(f, "{:<12} {:>8.1} s  {outcome}", self.name, self.took.as_secs_f64())
    }
}

fn summary(rows: &[Row], planned: usize, took: Duration) -> Result<()> {
    println!("\n== summary");
    for row in rows {
        println!("{row}");
    }
    println!("{:<12} {:>8.1} s", "total", took.as_secs_f64());
    match rows.iter().find_map(|row| row.result.as_ref().err().map(|error| (row.name, error))) {
        None => Ok(()),
        Some((name, error)) => {
            Err(format!("step {name}: {error}\n{} of {planned} steps were not run", planned - rows.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &'static str, function: fn() -> Result<Outcome>) -> Step {
        Step { name, run: Run::Here(function) }
    }

    #[test]
    fn steps_that_succeed_or_cannot_run_are_no_failure() {
        let steps = [step("first", || Ok(Outcome::Done)), step("second", || Ok(Outcome::Skipped("no tool")))];
        assert_eq!(run_steps(&steps), Ok(()));
    }

    #[test]
    fn the_first_failure_ends_the_run_and_is_named() {
        let steps = [
            step("first", || Err("it broke".to_owned())),
            step("second", || unreachable!("a step after a failed one was run")),
        ];
        let error = run_steps(&steps).unwrap_err();
        assert!(error.contains("step first: it broke"), "{error}");
        assert!(error.contains("1 of 2 steps were not run"), "{error}");
    }

    #[test]
    fn a_cargo_step_that_fails_is_a_failure() {
        let steps = [Step { name: "wrong", run: Run::Cargo(&["no-such-subcommand"]) }];
        let error = run_steps(&steps).unwrap_err();
        assert!(error.contains("cargo no-such-subcommand"), "{error}");
    }

    #[test]
    fn what_was_not_run_does_not_look_like_a_pass() {
        let row = Row {
            name: "deny",
            took: Duration::ZERO,
            result: Ok(Outcome::Skipped("cargo-deny is not installed")),
        };
        assert!(row.to_string().ends_with("skipped: cargo-deny is not installed"), "{row}");
    }
}
