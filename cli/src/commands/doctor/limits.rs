//! The operator's limits: how many messages may be ready, and how many dead.

use anyqueue::{PartitionId, Queue};

use super::Doctor;
use super::findings::{Findings, Verdict};
use crate::commands::stats::all;
use crate::failure::{Failure, Result};

const CHECK: &str = "limits";

impl Doctor {
    pub(super) async fn limits(&self, queue: &Queue, findings: &mut Findings) -> Result {
        if self.max_dead.is_none() && self.max_ready.is_none() {
            return Ok(());
        }
        let names = if self.queue.is_empty() { all(queue).await } else { Ok(self.queue.clone()) };
        match names {
            Ok(names) if names.is_empty() => findings.add(CHECK, Verdict::Ok, "there are no queues"),
            Ok(names) => {
                for name in names {
                    self.limits_of(queue, &name, findings).await;
                }
            }
            // Earlier findings must still be shown.
            Err(Failure::Usage(text) | Failure::Failed(text)) => {
                let text = format!("{text} with --queue; a limit that cannot be measured fails");
                findings.add(CHECK, Verdict::Failed, text);
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    async fn limits_of(&self, queue: &Queue, name: &PartitionId, findings: &mut Findings) {
        let Some(counts) = findings.need(CHECK, queue.counts(name).await) else { return };
        let limits = [("dead letters", counts.dead, self.max_dead), ("ready", counts.ready, self.max_ready)];
        for (what, count, most) in limits {
            if let Some(most) = most {
                let (verdict, text) = judge(what, count, most);
                findings.add(CHECK, verdict, format!("{name}: {text}"));
            }
        }
    }
}

/// A limit that cannot be measured fails.
fn judge(what: &str, count: Option<u64>, most: u64) -> (Verdict, String) {
    match count {
        None => (Verdict::Failed, format!("this backend does not count {what}, so the limit fails")),
        Some(count) if count > most => (Verdict::Failed, format!("{count} {what}, more than {most}")),
        Some(count) => (Verdict::Ok, format!("{count} {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_what_is_not_counted_fails() {
        let (verdict, text) = judge("dead letters", None, 5);
        assert!(verdict == Verdict::Failed && text.contains("does not count"), "{text}");
        assert!(judge("ready", Some(5), 5).0 == Verdict::Ok);
        assert!(judge("ready", Some(6), 5).0 == Verdict::Failed);
    }
}
