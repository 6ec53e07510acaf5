//! What a backend says of itself: what it survives, how long a message can be held, how long it may wait.

use anyqueue::adapter::{Capabilities, DurabilityLevel};

use super::findings::{Findings, Verdict};
use crate::open;
use crate::output::duration;

pub(super) fn tell(capabilities: &Capabilities, url: &str, findings: &mut Findings) {
    let (verdict, text) = survived(capabilities.durability.push);
    findings.add("durability", verdict, format!("{text} ({})", open::durability_source(url)));
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
            "acknowledged messages are lost if the server crashes: make it write to disk in time",
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
    if let Some(assumption) = open::assumed_consumer_timeout(url) {
        return (Verdict::Unknown, assumption);
    }
    let text = match capabilities.lease.max_hold {
        Some(most) => {
            format!("a message can be held for {} at most, as the backend declares", duration(most))
        }
        None => "none: a message can be held for as long as its lease is extended".to_owned(),
    };
    (Verdict::Ok, text)
}
