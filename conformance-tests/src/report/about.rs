//! What a report is about.

use std::thread;

use anyqueue::Result;
use anyqueue::adapter::{Capabilities, Durability, DurabilityLevel, LeaseKind, Reach};
use serde::Serialize;

use super::capabilities::{rows, survives};
use super::case::CaseReport;
use crate::harness::Harness;
use crate::least;
use crate::verdict::Outcome;

/// The backend that was tested, as it described itself when the run ended.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct About {
    /// The harness's name.
    pub backend: String,
    /// What the server (or library) reports as its version; `None` if it reports nothing or could not be
    /// reached.
    pub server_version: Option<String>,
    /// Where the suite ran, such as `2 cores, x86_64`.
    pub hardware: String,
    /// What the backend declares, in words; empty if it could not be reached.
    pub capabilities: Vec<(&'static str, String)>,
    /// What the backend declares but this run did not prove.
    pub unproven: Vec<String>,
    /// What a backend could declare but this one does not, with the server's rule if the harness cites one.
    /// Without a rule, it is unknown whether the backend cannot have it or only does not declare it.
    pub undeclared: Vec<(&'static str, Option<&'static str>)>,
}

impl About {
    pub(crate) async fn of(harness: &dyn Harness, cases: &[CaseReport]) -> Self {
        let (backend, hardware) = (harness.name().to_owned(), hardware());
        let Ok((server_version, declared)) = ask(harness).await else {
            // The cases have already said why.
            let (capabilities, unproven, undeclared) = (Vec::new(), Vec::new(), Vec::new());
            return Self { backend, server_version: None, hardware, capabilities, unproven, undeclared };
        };
        let capabilities = rows(&declared);
        let (unproven, undeclared) = (unproven(&declared, cases), undeclared(harness, &declared));
        Self { backend, server_version, hardware, capabilities, unproven, undeclared }
    }
}

/// Returns what no case covers, or none of those that ran.
fn unproven(declared: &Capabilities, cases: &[CaseReport]) -> Vec<String> {
    let passed = |id| cases.iter().any(|case| case.id == id && case.outcome == Outcome::Pass);
    let Durability { push, claim, settle } = declared.durability;
    // Where clients are all there is, killing a client proves this; where there is a server, killing the
    // server does.
    let crash =
        if declared.reach == Reach::Network { "fault.killed_under_load" } else { "kill.pusher_after_ok" };
    let proven = if passed(crash) { DurabilityLevel::ProcessCrash } else { DurabilityLevel::None };
    let mut unproven: Vec<String> = [("pushes", push), ("claims", claim), ("settlements", settle)]
        .into_iter()
        .filter(|(_, level)| *level > proven)
        .map(|(what, level)| format!("{what} survive the {}", survives(level)))
        .collect();
    if let Some(retention) = declared.retention {
        unproven.push(format!("messages are kept for {}", humantime::format_duration(retention)));
    }
    if !passed("numbers.long_leases") && declared.lease.kind == LeaseKind::Timed {
        unproven.push(format!("leases of up to {}", humantime::format_duration(declared.lease.max)));
    }
    if let Some(delay) = declared.push_delay.filter(|_| !passed("numbers.long_delays")) {
        unproven.push(format!("delays of up to {}", humantime::format_duration(delay.max)));
    }
    unproven
}

fn undeclared(harness: &dyn Harness, declared: &Capabilities) -> Vec<(&'static str, Option<&'static str>)> {
    let missing = least::EVERYTHING.iter().filter(|need| !need.is_declared(declared));
    missing.map(|need| (need.what(), harness.rule(*need))).collect()
}

fn hardware() -> String {
    let cores = thread::available_parallelism().map_or(0, Into::into);
    format!("{cores} cores, {}", std::env::consts::ARCH)
}

async fn ask(harness: &dyn Harness) -> Result<(Option<String>, Capabilities)> {
    const NAMESPACE: &str = "about";
    let storage = harness.open(NAMESPACE).await?;
    storage.init().await?;
    let version = storage.check().await?.server_version;
    let declared = storage.capabilities().clone();
    storage.close().await?;
    harness.remove(NAMESPACE).await;
    Ok((version, declared))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anyqueue::adapter::{Dedup, Forward, QueueStorage as _, Storage, async_trait};
    use anyqueue_memory::MemoryQueue;

    use super::*;
    use crate::need::Need;

    /// A memory queue that declares something else.
    #[derive(Clone, Debug)]
    struct Declaring(Arc<MemoryQueue>, Capabilities);

    impl Declaring {
        fn of(change: impl FnOnce(&mut Capabilities)) -> Self {
            let memory = MemoryQueue::new();
            let mut capabilities = memory.capabilities().clone();
            change(&mut capabilities);
            Self(Arc::new(memory), capabilities)
        }
    }

    #[async_trait]
    impl Forward for Declaring {
        fn inner(&self) -> &dyn Storage {
            &*self.0
        }

        fn capabilities(&self) -> &Capabilities {
            &self.1
        }
    }

    #[async_trait]
    impl Harness for Declaring {
        fn name(&self) -> &'static str {
            "declaring"
        }

        async fn open(&self, _: &str) -> Result<Arc<dyn Storage>> {
            Ok(Arc::new(self.clone()))
        }

        fn rule(&self, need: Need) -> Option<&'static str> {
            (need == Need::Groups).then_some("it has none")
        }
    }

    #[tokio::test]
    async fn a_durability_that_no_case_proved_is_listed_as_unproven() {
        let power = "pushes survive the loss of power".to_owned();
        let declaring = Declaring::of(|declared| declared.durability.push = DurabilityLevel::PowerLoss);
        let about = About::of(&declaring, &[]).await;
        assert!(about.unproven.contains(&power), "{:?}", about.unproven);
        let about = About::of(&Declaring::of(|_| ()), &[]).await;
        assert!(!about.unproven.contains(&power), "{:?}", about.unproven);
    }

    #[tokio::test]
    async fn what_is_not_declared_is_listed_with_the_rule_that_is_cited() {
        let without = |declared: &mut Capabilities| {
            declared.groups = false;
            declared.dedup = Dedup::None;
        };
        let undeclared = About::of(&Declaring::of(without), &[]).await.undeclared;
        assert!(undeclared.contains(&("groups", Some("it has none"))), "{undeclared:?}");
        assert!(undeclared.contains(&("deduplication", None)), "{undeclared:?}");
        let undeclared = About::of(&Declaring::of(|_| ()), &[]).await.undeclared;
        assert!(
            undeclared.iter().all(|(what, _)| !["groups", "deduplication"].contains(what)),
            "{undeclared:?}"
        );
    }
}
