//! What a backend declares: what it survives, how long a message can be held, and how long it may wait.

use anyqueue::adapter::{Capabilities, DurabilityLevel};

use super::backend;
use super::findings::{Findings, Verdict};
use crate::output::duration;

pub(super) fn check(capabilities: &Capabilities, url: &str, findings: &mut Findings) {
    let (verdict, text) = survived(capabilities.durability.push);
    findings.add("durability", verdict, format!("{text} ({})", backend::durability_source(url)));
    let (verdict, text) = held(capabilities, url);
    findings.add("consumer timeout", verdict, text);
    if let Some(kept) = capabilities.retention {
        let text = format!("a message that waits is dropped after {}", duration(kept));
        findings.add("retention", Verdict::Ok, text);
    }
}

fn survived(level: DurabilityLevel) -> (Verdict, &'static str) {
    match level {
        DurabilityLevel::None => (
            Verdict::Warning,
            "acknowledged messages are lost if the server crashes: configure it to write them to disk first",
        ),
        DurabilityLevel::ProcessCrash => {
            (Verdict::Warning, "acknowledged messages survive the crash of a process, not the loss of power")
        }
        DurabilityLevel::PowerLoss => (Verdict::Ok, "acknowledged messages survive the loss of power"),
        DurabilityLevel::MachineLoss => (Verdict::Ok, "acknowledged messages survive the loss of a machine"),
    }
}

fn held(capabilities: &Capabilities, url: &str) -> (Verdict, String) {
    // What is declared then rests on the URL alone.
    if let Some(assumption) = backend::assumed_consumer_timeout(url) {
        return (Verdict::Unknown, assumption);
    }
    let text = match capabilities.lease.max_hold {
        Some(most) => {
            format!("a message can be held for at most {}, as the backend declares", duration(most))
        }
        None => "none: a message can be held for as long as its lease is extended".to_owned(),
    };
    (Verdict::Ok, text)
}
