//! How a case ends: what its function returns, and the verdict that results from it.

use std::fmt;

use serde::Serialize;

use crate::clause::Clause;

/// The result of a case's function: nothing, or why it stopped.
pub type CaseResult<T = ()> = std::result::Result<T, Stop>;

/// The reason why a case's function stopped early. `?` passes it on.
#[derive(Clone, Debug)]
pub enum Stop {
    /// The contract is broken.
    Fail(Box<Failure>),
    /// Something came later than allowed, and nothing else is wrong. Once, that says as much about a busy
    /// machine as about the backend; if it happens each time the case is run, the contract is broken.
    Late(Box<Failure>),
    /// The backend is allowed to lack what this needs. The text completes "needs …".
    NotApplicable(String),
    /// No verdict is possible; the text says why.
    Inconclusive(String),
}

impl Stop {
    /// Turns a failure into one in which something came late and nothing else is wrong.
    pub(crate) fn late(self) -> Self {
        match self {
            Self::Fail(failure) => Self::Late(failure),
            other => other,
        }
    }
}

/// A broken clause, described so that someone who does not know the suite can act on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Failure {
    /// The clause of the contract.
    pub clause: Clause,
    /// What the clause requires here.
    pub expected: String,
    /// What happened instead.
    pub seen: String,
    /// What was done with the messages concerned, in order.
    pub history: Vec<String>,
    /// Likely causes: what the faults that this case is known to find do.
    pub likely: Vec<&'static str>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "clause {} ({}) is broken", self.clause, self.clause.title())?;
        writeln!(f, "  expected: {}", self.expected)?;
        write!(f, "  seen:     {}", self.seen)?;
        if !self.history.is_empty() {
            write!(f, "\n  history:")?;
        }
        self.history.iter().try_for_each(|line| write!(f, "\n    {line}"))?;
        if !self.likely.is_empty() {
            write!(f, "\n  a likely cause, as this is how such backends fail this case:")?;
        }
        self.likely.iter().try_for_each(|cause| write!(f, "\n    - {cause}"))
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The contract was kept.
    Pass,
    /// The contract was broken.
    Fail(Failure),
    /// The case does not concern this backend.
    NotApplicable {
        /// What is missing.
        needs: String,
        /// Whether the backend itself does not declare it (otherwise the harness does not offer it).
        declared: bool,
        /// The server's rule that prevents it, as [`Harness::rule`](crate::Harness::rule) cites it.
        rule: Option<&'static str>,
    },
    /// Nothing was observed.
    Inconclusive {
        /// The reason.
        why: String,
    },
}

impl Outcome {
    /// The backend may well have it, but this run cannot tell.
    pub(crate) fn not_offered(what: &str) -> Self {
        Self::NotApplicable { needs: format!("{what} (offered by the harness)"), declared: false, rule: None }
    }

    pub(crate) fn broken(clause: Clause, expected: &str, seen: &str) -> Self {
        let (expected, seen) = (expected.to_owned(), seen.to_owned());
        Self::Fail(Failure { clause, expected, seen, history: Vec::new(), likely: Vec::new() })
    }
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fail(failure) | Stop::Late(failure) => Self::Fail(*failure),
            Stop::NotApplicable(needs) => Self::not_offered(&needs),
            Stop::Inconclusive(why) => Self::Inconclusive { why },
        }
    }
}
