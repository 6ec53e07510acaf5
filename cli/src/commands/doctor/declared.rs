//! What a backend declares: which events messages survive, how long they can be held, how long they may wait,
//! and what counts as a delivery.

use anyqueue::adapter::{Capabilities, DeliveryCount, DurabilityLevel};

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
    let kept = if capabilities.ledger.is_some() { KEEPS_ENDS } else { KEEPS_NO_ENDS };
    findings.add("ledger", Verdict::Ok, kept);
    if releases_count(capabilities) {
        findings.add("deliveries", Verdict::Ok, RELEASES_COUNT);
    }
}

const KEEPS_ENDS: &str =
    "the backend can keep what becomes of tasks, for workers that ask for it: see `anyqueue tasks`";
const KEEPS_NO_ENDS: &str = "the backend keeps nothing of tasks that have ended";

const RELEASES_COUNT: &str = "what other processes release counts as a delivery, also what `pull --settle waiting` does: a message \
     that is released often becomes a dead letter, though no handler failed";

/// Whether releases by other processes use up a message's deliveries: they do if the server counts them, and
/// the message cannot carry a note that they were releases.
fn releases_count(capabilities: &Capabilities) -> bool {
    let can_note = capabilities.postpone_headers && capabilities.postpone_delay.is_some();
    capabilities.delivery_count == DeliveryCount::Deliveries && !can_note
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
    // In this case what is declared rests on the URL alone.
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

#[cfg(all(test, feature = "memory"))]
mod tests {
    use anyqueue::adapter::QueueStorage as _;

    use super::*;

    /// What is reported about deliveries if the server counts them in this way, and headers can be replaced
    /// or not.
    fn said(delivery_count: DeliveryCount, postpone_headers: bool) -> Option<String> {
        let declared = anyqueue_memory::MemoryQueue::new().capabilities().clone();
        let mut findings = Findings::default();
        check(&Capabilities { delivery_count, postpone_headers, ..declared }, "memory:", &mut findings);
        findings.0.into_iter().find(|finding| finding.check == "deliveries").map(|finding| finding.text)
    }

    #[test]
    fn that_releases_by_others_count_is_said_where_they_do() {
        let text = said(DeliveryCount::Deliveries, false);
        assert!(text.is_some_and(|text| text.contains("becomes a dead letter")), "as on SQS FIFO");
        assert_eq!(said(DeliveryCount::Deliveries, true), None);
        assert_eq!(said(DeliveryCount::ExceptReleases, false), None);
        assert_eq!(said(DeliveryCount::None, false), None);
    }
}
