//! A ledger in a storage of its own: whether it can be reached and read, and whether there is room in it.

use super::findings::{Findings, Verdict};
use crate::failure::with_causes;
use crate::open;

const CHECK: &str = "ledger beside";

/// Checks the storage at --ledger-url.
pub(super) async fn check(url: &str, findings: &mut Findings) {
    let ledger = match open::check_ledger(url).await {
        Ok(ledger) => ledger,
        Err(error) => {
            let text = format!("it cannot keep what becomes of tasks: {}", with_causes(&error));
            findings.add(CHECK, Verdict::Failed, text);
            return;
        }
    };
    let name = ledger.name;
    if !ledger.keeps_ends {
        let text = format!(
            "{name} keeps no ends of tasks: give --ledger-url a memory, SQLite, PostgreSQL or Redis URL"
        );
        findings.add(CHECK, Verdict::Failed, text);
        return;
    }
    findings.add(CHECK, Verdict::Ok, format!("{name} keeps what becomes of tasks"));
    for warning in ledger.warnings {
        findings.add(CHECK, Verdict::Warning, warning);
    }
    #[cfg(feature = "sqlite")]
    findings.extend(super::backend::ledger_room(url).await);
}
