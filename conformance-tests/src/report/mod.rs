//! What a run found: per case, as a table, as JSON, as JUnit's XML, as a certificate in Markdown, and in one
//! word.

mod about;
mod capabilities;
mod case;
mod junit;
mod markdown;
mod table;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use self::case::millis;
use crate::options::{Options, Tier};
use crate::verdict::Outcome;

pub use about::About;
pub use capabilities::capability_table;
pub use case::CaseReport;
pub use markdown::markdown_matrix;

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The backend that was tested.
    #[serde(flatten)]
    pub about: About,
    /// The version of this suite.
    pub suite: &'static str,
    /// How much was run.
    pub tier: Tier,
    /// The seed of its random choices.
    pub seed: u64,
    /// Whether only a selection of cases was run.
    pub selection: bool,
    /// How long the whole run took, in milliseconds.
    pub took_ms: u64,
    /// The verdict.
    pub certificate: Certificate,
    /// The cases, by id.
    pub cases: Vec<CaseReport>,
}

/// The verdict of a report in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certificate {
    /// Every case that concerns the backend was run and passed.
    Full,
    /// Nothing failed, but not every case that concerns the backend was run.
    Partial,
    /// Something failed or was inconclusive, or nothing was run.
    Failed,
}

/// How many cases ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Not applicable.
    pub not_applicable: usize,
    /// Inconclusive.
    pub inconclusive: usize,
}

impl Report {
    pub(crate) fn new(about: About, options: &Options, took: Duration, cases: Vec<CaseReport>) -> Self {
        let selection = options.is_selection();
        Self {
            about,
            suite: env!("CARGO_PKG_VERSION"),
            tier: options.tier,
            seed: options.seed,
            selection,
            took_ms: millis(took),
            certificate: certificate(&cases, selection),
            cases,
        }
    }

    /// Returns the verdict.
    pub fn certificate(&self) -> Certificate {
        self.certificate
    }

    /// Returns how many cases ended in each way.
    pub fn tally(&self) -> Tally {
        Tally::of(&self.cases)
    }

    /// Returns the result of one case.
    pub fn case(&self, id: &str) -> Option<&CaseReport> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// Returns the report as JSON, for other programs.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self);
        // Serialising fails only for a map whose keys are not strings, or if a `Serialize` fails; there is
        // neither.
        json.unwrap_or_else(|error| format!("{{\"error\": {:?}}}", error.to_string()))
    }

    /// Returns the groups, in the order of their ids, with their cases.
    pub(crate) fn groups(&self) -> Vec<(&'static str, Vec<&CaseReport>)> {
        let mut groups: Vec<(&'static str, Vec<&CaseReport>)> = Vec::new();
        for case in &self.cases {
            match groups.iter_mut().find(|(group, _)| *group == case.group) {
                Some((_, cases)) => cases.push(case),
                None => groups.push((case.group, vec![case])),
            }
        }
        groups
    }
}

fn certificate(cases: &[CaseReport], selection: bool) -> Certificate {
    let tally = Tally::of(cases);
    let withheld = |case: &CaseReport| matches!(case.outcome, Outcome::NotApplicable { declared: false, .. });
    if tally.failed > 0 || tally.inconclusive > 0 || tally.passed == 0 {
        Certificate::Failed
    } else if selection || cases.iter().any(withheld) {
        Certificate::Partial
    } else {
        Certificate::Full
    }
}

impl Tally {
    pub(crate) fn of<'a>(cases: impl IntoIterator<Item = &'a CaseReport>) -> Self {
        let mut tally = Self::default();
        for case in cases {
            match case.outcome {
                Outcome::Pass => tally.passed += 1,
                Outcome::Fail(_) => tally.failed += 1,
                Outcome::NotApplicable { .. } => tally.not_applicable += 1,
                Outcome::Inconclusive { .. } => tally.inconclusive += 1,
            }
        }
        tally
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Failed => "failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clause::Clause;
    use crate::options::Layer;
    use crate::verdict::Failure;

    fn report(outcomes: &[Outcome]) -> Report {
        let ids = ["push.one", "push.two", "pull.one"];
        let case = |(outcome, id): (&Outcome, &&'static str)| CaseReport {
            id,
            group: id.split_once('.').unwrap().0,
            layer: Layer::Storage,
            clauses: &[Clause::Stored],
            outcome: outcome.clone(),
            attempts: 1,
            took_ms: 1,
        };
        let declared = vec![("groups", "no".to_owned())];
        let version = Some("1.2 | 3".to_owned());
        let about = About {
            backend: "some".to_owned(),
            server_version: version,
            hardware: "2 cores, x86_64".to_owned(),
            capabilities: declared,
            unproven: vec!["pushes survive the loss of power".to_owned()],
            undeclared: vec![("deduplication", None), ("browsing", Some("it cannot"))],
        };
        let cases = outcomes.iter().zip(&ids).map(case).collect();
        Report::new(about, &Options::new().with_seed(7), Duration::from_millis(1234), cases)
    }

    fn failed() -> Outcome {
        Outcome::Fail(Failure {
            clause: Clause::Stored,
            expected: "a message".to_owned(),
            seen: "none".to_owned(),
            history: vec!["A push to work: #0 → Stored".to_owned()],
            likely: vec!["Every second message is dropped."],
        })
    }

    fn not_applicable(declared: bool) -> Outcome {
        Outcome::NotApplicable {
            needs: "groups".to_owned(),
            declared,
            rule: declared.then_some("it has none"),
        }
    }

    #[test]
    fn what_the_backend_declares_to_lack_leaves_the_certificate_full() {
        assert_eq!(report(&[Outcome::Pass, not_applicable(true)]).certificate(), Certificate::Full);
    }

    #[test]
    fn what_the_harness_withholds_or_a_selection_leaves_out_makes_it_partial() {
        assert_eq!(report(&[Outcome::Pass, not_applicable(false)]).certificate(), Certificate::Partial);
        let passed = report(&[Outcome::Pass]).cases;
        assert_eq!(certificate(&passed, false), Certificate::Full);
        assert_eq!(certificate(&passed, true), Certificate::Partial);
    }

    #[test]
    fn a_failure_an_inconclusive_case_or_no_pass_at_all_is_no_certificate() {
        let inconclusive = Outcome::Inconclusive { why: "nothing came".to_owned() };
        for outcomes in [
            vec![Outcome::Pass, failed()],
            vec![Outcome::Pass, inconclusive],
            vec![not_applicable(true)],
            vec![],
        ] {
            assert_eq!(report(&outcomes).certificate(), Certificate::Failed, "{outcomes:?}");
        }
    }

    #[test]
    fn the_matrix_counts_what_concerns_the_backend() {
        let text = markdown_matrix(&[report(&[Outcome::Pass, failed(), not_applicable(true)])]);
        assert!(text.contains("| push | 1/2 |"), "{text}");
        assert!(text.contains("| pull | – |"), "{text}");
        assert!(text.contains("**failed**"), "{text}");
    }

    #[test]
    fn a_failure_is_shown_with_clause_expectation_and_history() {
        let text = report(&[failed()]).to_string();
        for part in [
            "push.one",
            "clause 1 (Ok means stored",
            "expected: a message",
            "seen:     none",
            "#0 → Stored",
            "declared, not proven by this run: pushes survive the loss of power",
            "no rule of the server's cited: deduplication\n",
            "seed 7",
        ] {
            assert!(text.contains(part), "{part:?} is missing in:\n{text}");
        }
        assert!(report(&[failed()]).to_json().contains("\"outcome\": \"fail\""));
    }

    #[test]
    fn junit_has_a_test_case_per_case_and_escapes_what_it_quotes() {
        let odd = Outcome::Inconclusive { why: "a < b & \"c\"".to_owned() };
        let xml = report(&[failed(), odd, not_applicable(true)]).to_junit();
        for part in [
            r#"<testsuite name="some" tests="3" failures="2" errors="0" skipped="1" time="1.234">"#,
            r#"<testcase classname="push" name="push.one" time="0.001">"#,
            r#"<failure message="clause 1: a message">clause 1 ("#,
            "inconclusive: a &lt; b &amp; &quot;c&quot;",
            r#"<skipped message="needs groups: it has none"/>"#,
        ] {
            assert!(xml.contains(part), "{part} is not in:\n{xml}");
        }
    }

    #[test]
    fn the_markdown_certificate_says_what_was_run_and_why_not_all_of_it() {
        let text = report(&[failed(), Outcome::Pass, not_applicable(true)]).to_markdown();
        for part in [
            "# Conformance of some: failed",
            "| server version | 1.2 \\| 3 |",
            "| cases run | 2 |",
            "| seed | 7 |",
            "| duration | 1234 ms |",
            "| groups | it has none | pull.one |",
            "| groups | no |",
            "## Declared, not proven by this run\n\n- pushes survive the loss of power",
            "| deduplication | not cited |",
            "| browsing | it cannot |",
            "## push.one\n\n```text\nclause 1 (",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
